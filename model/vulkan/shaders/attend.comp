#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "cache.glsl"
// softmax(q·k)·v of R rows and a head in a work group, over the tokens of one split, 64 at a time; the maximum of a row's scores is
// corrected as it rises (flash attention).
layout(constant_id = 3) const uint R = 1;
layout(local_size_x = 64) in;
const uint ACROSS = (DV + 63) / 64, SPAN = 1024; // tokens of a split
shared float qs[R * DK];
shared float ps[R * 64];
shared float part[64 * R];
shared uvec2 tileAt[64];
shared uint slotOf[64];
shared int firstPos[64];

void main() {
    uint lane = gl_LocalInvocationID.x, head = gl_WorkGroupID.x, from = gl_WorkGroupID.y * R, split = gl_WorkGroupID.z, g = head / share;
    for (uint i = lane; i < R * DK; i += 64) qs[i] = from + i / DK < n ? q.v[((from + i / DK) * heads + head) * DK + i % DK] : 0;
    int at[R], latest = -1;
    float top[R], sum[R], acc[R * ACROSS];
    for (uint r = 0; r < R; r++) {
        at[r] = from + r < n ? int(posq.v[from + r]) : -1;
        latest = max(latest, at[r]);
        top[r] = NEVER;
        sum[r] = 0;
    }
    for (uint i = 0; i < R * ACROSS; i++) acc[i] = 0;
    uint columns = columnCount(g), begin = splits > 1 ? split * SPAN : 0, end = splits > 1 ? min(columns, begin + SPAN) : columns;
    barrier();
    for (uint t0 = begin; t0 < end; t0 += 64) {
        Words tile;
        uint slot = t0 + lane < end ? token(g, t0 + lane, tile) : NOWHERE;
        int pos = 0x7fffffff;
        slotOf[lane] = slot;
        if (slot != NOWHERE) {
            tileAt[lane] = uvec2(tile);
            pos = position(tile, slot);
        }
        firstPos[lane] = pos;
        barrier();
        if (firstPos[0] > latest && firstPos[0] != 0x7fffffff) break; // positions rise: what follows is seen by no row
        float s[R];
        for (uint r = 0; r < R; r++) s[r] = 0;
        if (slot != NOWHERE)
            for (uint d = 0; d < DK; d++) {
                float k = key(tile, slot, d);
                for (uint r = 0; r < R; r++) s[r] = fma(qs[r * DK + d], k, s[r]);
            }
        for (uint r = 0; r < R; r++) {
            s[r] = slot != NOWHERE && visible(at[r], pos) ? score(s[r]) : NEVER;
            float most = subgroupMax(s[r]);
            if (subgroupElect()) part[gl_SubgroupID * R + r] = most;
        }
        barrier();
        float corrected[R];
        for (uint r = 0; r < R; r++) {
            float most = top[r];
            for (uint i = 0; i < gl_NumSubgroups; i++) most = max(most, part[i * R + r]);
            corrected[r] = most == NEVER ? 1 : exp(top[r] - most);
            s[r] = s[r] == NEVER ? 0 : exp(s[r] - most);
            top[r] = most;
            ps[r * 64 + lane] = s[r];
        }
        barrier();
        for (uint r = 0; r < R; r++) {
            float more = subgroupAdd(s[r]);
            if (subgroupElect()) part[gl_SubgroupID * R + r] = more;
        }
        barrier();
        for (uint r = 0; r < R; r++) {
            float more = 0;
            for (uint i = 0; i < gl_NumSubgroups; i++) more += part[i * R + r];
            sum[r] = sum[r] * corrected[r] + more;
            for (uint c = 0; c < ACROSS; c++) acc[r * ACROSS + c] *= corrected[r];
        }
        for (uint j = 0; j < min(64, end - t0); j++) {
            if (slotOf[j] == NOWHERE) continue;
            Words t = Words(tileAt[j]);
            for (uint c = 0; c < ACROSS; c++) {
                uint d = c * 64 + lane;
                if (d >= DV) break;
                float v = value(t, slotOf[j], d);
                for (uint r = 0; r < R; r++) acc[r * ACROSS + c] = fma(ps[r * 64 + j], v, acc[r * ACROSS + c]);
            }
        }
        barrier();
    }
    for (uint r = 0; r < R && from + r < n; r++) {
        uint row = (from + r) * heads + head;
        if (splits > 1) { // parts: [splits, n, heads, DV+2]
            uint o = (split * n * heads + row) * (DV + 2);
            for (uint c = 0; c < ACROSS; c++)
                if (c * 64 + lane < DV) y.v[o + c * 64 + lane] = acc[r * ACROSS + c];
            if (lane == 0) {
                y.v[o + DV] = top[r];
                y.v[o + DV + 1] = sum[r];
            }
            continue;
        }
        float most = top[r], all = sum[r], factor = 1;
        if ((flags & 1) != 0 && most != NEVER) {
            most = max(most, sinks.v[head]);
            factor = exp(top[r] - most);
            all = all * factor + exp(sinks.v[head] - most);
        }
        for (uint c = 0; c < ACROSS; c++)
            if (c * 64 + lane < DV) y.v[row * DV + c * 64 + lane] = top[r] == NEVER ? 0 : acc[r * ACROSS + c] * factor / all;
        if ((flags & 2) != 0 && lane == 0) {
            stats.v[2 * row] = most;
            stats.v[2 * row + 1] = all;
        }
    }
}
