#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// Pairs of a row and an expert by expert, and the work groups that multiply them, each up to SIZE pairs of one expert. One work group.
layout(constant_id = 0) const uint MOST = 1; // experts there are
layout(constant_id = 1) const uint SIZE = 1;
layout(local_size_x = 256) in;
layout(push_constant) uniform Push {
    Words chosen;       // [count]
    Words tasks, pairs; // as weights.glsl reads them
    uint count, groups; // pairs; tasks there is room for: those that are not needed have no pair
};
shared uint has[MOST];  // pairs of an expert, then where its next one goes
shared uint before[2 * 256];

// behind is the sum of v over the lanes before this one, and all of them.
uint behind(uint v, out uint all) {
    uint lane = gl_LocalInvocationID.x, from = 0;
    before[lane] = v;
    barrier();
    for (uint step_ = 1; step_ < 256; step_ *= 2) {
        before[256 - from + lane] = before[from + lane] + (lane >= step_ ? before[from + lane - step_] : 0);
        from = 256 - from;
        barrier();
    }
    uint sum = before[from + lane];
    all = before[from + 255];
    barrier();
    return sum - v;
}

void main() {
    uint lane = gl_LocalInvocationID.x, each = (MOST + 255) / 256, low = lane * each, high = min(low + each, MOST);
    for (uint e = lane; e < MOST; e += 256) has[e] = 0;
    barrier();
    for (uint p = lane; p < count; p += 256) atomicAdd(has[chosen.v[p]], 1);
    barrier();
    uint mine = 0, parts = 0, all;
    for (uint e = low; e < high; e++) {
        mine += has[e];
        parts += (has[e] + SIZE - 1) / SIZE;
    }
    uint at = behind(mine, all), task = behind(parts, all);
    for (uint e = low; e < high; e++) {
        uint end = at + has[e];
        has[e] = at;
        for (; at < end; at = min(at + SIZE, end)) {
            tasks.v[3 * task] = e;
            tasks.v[3 * task + 1] = at;
            tasks.v[3 * task + 2] = min(at + SIZE, end);
            task++;
        }
    }
    for (uint t = all + lane; t < groups; t += 256) {
        tasks.v[3 * t] = 0;
        tasks.v[3 * t + 1] = 0;
        tasks.v[3 * t + 2] = 0;
    }
    barrier();
    for (uint p = lane; p < count; p += 256) pairs.v[atomicAdd(has[chosen.v[p]], 1)] = p;
}
