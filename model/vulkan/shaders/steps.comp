#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
// y = (W·x + bias)·scale for few rows x: each work group has ROWS rows of W and reads them once for up to NX rows of x.
layout(constant_id = 1) const uint NX = 1;
const uint ROWS = 4, LANES = 64;
layout(local_size_x = 64) in;
shared float part[LANES * 4]; // [subgroup][ROWS], of one row of x

void main() {
    uint first = group() * ROWS, lane = gl_LocalInvocationID.x;
    Work of = work(gl_WorkGroupID.z, NX);
    if (first >= rows || of.first >= of.end) return;
    uint at[NX];
    for (uint i = 0; i < NX; i++) at[i] = inputOf(outputOf(min(of.first + i, of.end - 1))) * cols;
    float acc[ROWS * NX];
    for (uint i = 0; i < ROWS * NX; i++) acc[i] = 0;
    uint units = (cols + 7) / 8;
    for (uint u = lane; u < units; u += LANES) {
        uint c0, c1;
        columns(u, c0, c1);
        vec4 xa[NX], xb[NX];
        for (uint i = 0; i < NX; i++) {
            xa[i] = four(x, at[i], c0, cols);
            xb[i] = four(x, at[i], c1, cols);
        }
        for (uint r = 0; r < ROWS; r++) {
            if (first + r >= rows) break;
            vec4 a, b;
            values(of.w, (first + r) * stride, u, a, b);
            for (uint i = 0; i < NX; i++) acc[r * NX + i] += dot(a, xa[i]) + dot(b, xb[i]);
        }
    }
    for (uint i = 0; i < NX; i++) {
        for (uint r = 0; r < ROWS; r++) {
            float s = subgroupAdd(acc[r * NX + i]);
            if (subgroupElect()) part[gl_SubgroupID * ROWS + r] = s;
        }
        barrier();
        if (lane < ROWS && first + lane < rows && of.first + i < of.end) {
            float sum = 0;
            for (uint s = 0; s < gl_NumSubgroups; s++) sum += part[s * ROWS + lane];
            put(of.bias, outputOf(of.first + i), first + lane, sum);
        }
        barrier();
    }
}
