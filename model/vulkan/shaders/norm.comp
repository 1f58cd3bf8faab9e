#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// y = norm(x)·w + bias of rows of a width; with flags 4 it is scaled and added to y. A work group has a row.
layout(local_size_x = 128) in;
layout(push_constant) uniform Push {
    Floats x, y, w, bias; // [rows, width], [rows, width], [width], [width]
    uint rows, width;
    float eps, scale;
    uint flags; // 1: weight, 2: bias, 4: add, 8: the mean is taken off
};
shared float part[128];

float total(float v) {
    v = subgroupAdd(v);
    if (subgroupElect()) part[gl_SubgroupID] = v;
    barrier();
    float sum = 0;
    for (uint s = 0; s < gl_NumSubgroups; s++) sum += part[s];
    barrier();
    return sum;
}

void main() {
    uint row = group(), lane = gl_LocalInvocationID.x;
    if (row >= rows) return;
    uint at = row * width;
    float mean = 0, sum = 0;
    if ((flags & 8) != 0) {
        for (uint i = lane; i < width; i += 128) sum += x.v[at + i];
        mean = total(sum) / float(width);
        sum = 0;
    }
    for (uint i = lane; i < width; i += 128) {
        float d = x.v[at + i] - mean;
        sum += d * d;
    }
    float unit = 1 / sqrt(total(sum) / float(width) + eps);
    for (uint i = lane; i < width; i += 128) {
        float v = (x.v[at + i] - mean) * unit;
        if ((flags & 1) != 0) v *= w.v[i];
        if ((flags & 2) != 0) v += bias.v[i];
        y.v[at + i] = (flags & 4) != 0 ? y.v[at + i] + scale * v : v;
    }
}
