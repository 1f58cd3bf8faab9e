#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// y = norm(x)·act(z), norm(x·act(z)), or x·act(z): the norm is RMSNorm over each of a row's groups. A work group has one.
layout(constant_id = 0) const uint ACT = 0;
const uint SILU = 0, SIGMOID = 1, SOFTPLUS = 2;
layout(local_size_x = 128) in;
layout(push_constant) uniform Push {
    Floats x, z, w, y;           // [n, groups, width]; z stride numbers a row, each for share numbers of x; [width] or [groups, width]
    uint n, groups, width, stride, share, step; // step: from a group's weights to the next one's
    uint flags;                  // 1: gate before the norm, 2: norm, 4: gate behind it
    float eps;
};
shared float part[128];

float total(float v) {
    v = subgroupAdd(v);
    if (subgroupElect()) part[gl_SubgroupID] = v;
    barrier();
    float sum = 0;
    for (uint s = 0; s < gl_NumSubgroups; s++) sum += part[s];
    return sum;
}

float gate(uint row, uint i) {
    float v = z.v[row * stride + i / share];
    if (ACT == SOFTPLUS) return softplus(v);
    float s = 1 / (1 + exp(-v));
    return ACT == SILU ? v * s : s;
}

void main() {
    uint row = group() / groups, first = group() % groups * width, lane = gl_LocalInvocationID.x, at = row * groups * width + first;
    if (row >= n) return;
    float squares = 0, unit = 1;
    if ((flags & 2) != 0) {
        for (uint i = lane; i < width; i += 128) {
            float v = x.v[at + i];
            if ((flags & 1) != 0) v *= gate(row, first + i);
            squares += v * v;
        }
        unit = 1 / sqrt(total(squares) / float(width) + eps);
    }
    for (uint i = lane; i < width; i += 128) {
        float v = x.v[at + i] * unit;
        if ((flags & 2) != 0) v *= w.v[group() % groups * step + i];
        if ((flags & 5) != 0) v *= gate(row, first + i);
        y.v[at + i] = v;
    }
}
