/* SGD chain in C with the memory layout and loops of the compiled Python kernel (method/kernels/sgd.py).
   The benchmark `chain-c` compiles and runs it. */

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float decay(float x) {
    float t = (x > -87.0f ? x : -87.0f) * 1.4426950408889634f;
    float k = floorf(t + 0.5f);
    float f = t - k;
    float p = 1.5353362e-4f;
    p = p * f + 1.3398874e-3f;
    p = p * f + 9.6184370e-3f;
    p = p * f + 5.5503324e-2f;
    p = p * f + 2.4022648e-1f;
    p = p * f + 6.9314720e-1f;
    p = p * f + 1.0f;
    int32_t bits = ((int32_t)k + 127) << 23;
    float power;
    memcpy(&power, &bits, 4);
    return p * power;
}

static inline float log_one_plus(float x) {
    float q = x / (2.0f + x), s = q * q;
    float p = 1.0f / 13;
    p = p * s + 1.0f / 11;
    p = p * s + 1.0f / 9;
    p = p * s + 1.0f / 7;
    p = p * s + 1.0f / 5;
    p = p * s + 1.0f / 3;
    return 2.0f * q * (1.0f + s * p);
}

/* width includes the intercept, the last column; visits[v + 1] is the end of visit v, in steps;
   mean and after are [visits, width]: the mean of the weights in each visit, and the weights after it.
   Returns the total loss. */
double chain(const uint16_t *restrict columns, const float *restrict values, const int64_t *restrict starts,
             const float *restrict targets, const int64_t *restrict steps, const int64_t *restrict visits,
             int64_t visit_count, int64_t width, double eta, float *restrict w, double *restrict sums,
             float *restrict mean, float *restrict after) {
    float score[1024], slope[1024], value[1024];
    double lost = 0;
    int64_t step = 0;
    for (int64_t v = 0; v < visit_count; v++) {
        int64_t begin = step;
        for (; step < visits[v + 1]; step++) {
            int64_t first = steps[step], count = steps[step + 1] - first;
            for (int64_t r = 0; r < count; r++) {
                float total = w[width - 1];
                for (int64_t p = starts[first + r]; p < starts[first + r + 1]; p++)
                    total += w[columns[p]] * values[p];
                score[r] = total;
            }
            for (int64_t r = 0; r < count; r++) {
                float y = targets[first + r], margin = score[r] * y, small = decay(-fabsf(margin));
                slope[r] = -y * (margin > 0 ? small : 1.0f) / (1.0f + small);
                value[r] = log_one_plus(small) + (margin > 0 ? 0.0f : -margin);
            }
            float here = 0, bias = 0, gain = (float)(-eta / count);
            for (int64_t r = 0; r < count; r++) here += value[r];
            lost += here;
            for (int64_t r = 0; r < count; r++) {
                slope[r] *= gain;
                bias += slope[r];
            }
            for (int64_t j = 0; j < width; j++) sums[j] += w[j];
            for (int64_t r = 0; r < count; r++) {
                float c = slope[r];
                for (int64_t p = starts[first + r]; p < starts[first + r + 1]; p++)
                    w[columns[p]] += c * values[p];
            }
            w[width - 1] += bias;
        }
        double share = 1.0 / (step - begin);
        for (int64_t j = 0; j < width; j++) {
            after[v * width + j] = w[j];
            mean[v * width + j] = (float)(share * sums[j]);
            sums[j] = 0;
        }
    }
    return lost;
}
