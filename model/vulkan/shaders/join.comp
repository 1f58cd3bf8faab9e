#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// y = scale·(the sum of each row's experts by their shares + what the network beside them gives, times the sigmoid of its gate).
layout(local_size_x = 128) in;
layout(push_constant) uniform Push {
    Floats parts, share; // [n, most, width], [n, most]
    Floats beside, gate; // [n, width], if flags has 1; [n], if it has 2
    Floats y;            // [n, width]
    uint n, width, most;
    float scale;
    uint flags;          // 4: shares are left out, 8: it is added to y
};

void main() {
    uint i = group() * 128 + gl_LocalInvocationID.x;
    if (i >= n * width) return;
    uint row = i / width, column = i % width;
    float sum = 0;
    for (uint j = 0; j < most; j++) {
        float part = parts.v[(row * most + j) * width + column];
        sum = (flags & 4) != 0 ? sum + part : fma(share.v[row * most + j], part, sum);
    }
    if ((flags & 1) != 0) {
        float other = beside.v[i];
        if ((flags & 2) != 0) other /= 1 + exp(-gate.v[row]);
        sum += other;
    }
    sum *= scale;
    y.v[i] = (flags & 8) != 0 ? y.v[i] + sum : sum;
}
