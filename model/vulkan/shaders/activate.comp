#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// y = act(x), times up if there is one; or the soft cap of x.
layout(constant_id = 0) const uint ACT = 0; // model.Activation; CAP is limit·tanh(x/limit)
const uint SILU = 0, GELU_TANH = 1, GELU = 2, RELU = 3, CLAMPED = 4, SQUARED = 6, CAP = 100;
layout(local_size_x = 128) in;
layout(push_constant) uniform Push {
    Floats x, up, y;
    uint count, gated;
    float limit, alpha;
};

float tangent(float v) { return tanh(clamp(v, -20.0, 20.0)); }

// error is the error function, within 1.5e-7 (Abramowitz and Stegun 7.1.26).
float error(float v) {
    float t = 1 / (1 + 0.3275911 * abs(v));
    float p = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
    return sign(v) * (1 - p * exp(-v * v));
}

void main() {
    uint i = group() * 128 + gl_LocalInvocationID.x;
    if (i >= count) return;
    float v = x.v[i];
    if (ACT == SILU) v = v / (1 + exp(-v));
    else if (ACT == GELU_TANH) v = 0.5 * v * (1 + tangent(0.7978845608 * (v + 0.044715 * v * v * v)));
    else if (ACT == GELU) v = 0.5 * v * (1 + error(v * 0.7071067812));
    else if (ACT == RELU) v = max(v, 0);
    else if (ACT == SQUARED) v = max(v, 0) * max(v, 0);
    else if (ACT == CLAMPED) {
        v = min(v, limit);
        y.v[i] = v / (1 + exp(-alpha * v)) * (clamp(up.v[i], -limit, limit) + 1);
        return;
    } else v = limit * tangent(v / limit);
    y.v[i] = gated != 0 ? v * up.v[i] : v;
}
