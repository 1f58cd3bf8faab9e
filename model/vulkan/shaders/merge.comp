#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "cache.glsl"
// The splits of attention as one: q are the parts [splits, n, heads, DV+2].
layout(local_size_x = 64) in;

void main() {
    uint row = group(), lane = gl_LocalInvocationID.x;
    if (row >= n * heads) return;
    uint step_ = n * heads * (DV + 2), o = row * (DV + 2);
    float most = NEVER, all = 0;
    for (uint s = 0; s < splits; s++) most = max(most, q.v[s * step_ + o + DV]);
    bool any_ = most != NEVER;
    if ((flags & 1) != 0) most = max(most, sinks.v[row % heads]);
    for (uint s = 0; s < splits; s++) {
        float m = q.v[s * step_ + o + DV];
        if (m != NEVER) all += q.v[s * step_ + o + DV + 1] * exp(m - most);
    }
    if ((flags & 1) != 0) all += exp(sinks.v[row % heads] - most);
    for (uint d = lane; d < DV; d += 64) {
        float v = 0;
        for (uint s = 0; s < splits; s++) {
            float m = q.v[s * step_ + o + DV];
            if (m != NEVER) v += q.v[s * step_ + o + d] * exp(m - most);
        }
        y.v[row * DV + d] = any_ ? v / all : 0;
    }
}
