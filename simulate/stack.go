package simulate

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
)

// Stacked bars: what a step or a layer consists of. A bar is the rows of one series and x that name a stage, or a part of a step.

// stepParts are metrics that add up to step_s.
var stepParts = []string{"gpu_s", "link_s", "flash_s", "engine_s"}

// stackColours are the parts' colours, in the order in which parts first appear.
var stackColours = []string{"#3b7dd8", "#e0a030", "#2e8b57", "#b0508f", "#7a8794", "#c8553d", "#63b3c4"}

// partOf is the part of a whole that a row is; false where it is none.
func partOf(r Row) (name string, ok bool) {
	if s, ok := r.X["stage"].(string); ok && r.Metric == "stage_s" {
		return s, true
	}
	if slices.Contains(stepParts, r.Metric) {
		return strings.TrimSuffix(r.Metric, "_s"), true
	}
	return "", false
}

// stack is one bar.
type stack struct {
	label string
	parts map[string]float64
	whole float64
}

// stacksOf are the bars of rows, in their order, and the names of all parts.
func stacksOf(rows []Row) (list []*stack, names []string) {
	by := map[string]*stack{}
	for _, r := range rows {
		name, ok := partOf(r)
		if !ok {
			continue
		}
		x := map[string]any{}
		for k, v := range r.X {
			if k != "stage" {
				x[k] = v
			}
		}
		label := strings.TrimSpace(r.Series + " " + labelOf(x))
		s := by[label]
		if s == nil {
			s = &stack{label: label, parts: map[string]float64{}}
			by[label] = s
			list = append(list, s)
		}
		s.parts[name] += r.Value
		s.whole += r.Value
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return list, names
}

// stacked draws the parts of rows as bars of one scale over a legend; empty where there are none.
func stacked(rows []Row) template.HTML {
	list, names := stacksOf(rows)
	most := 0.0
	for _, s := range list {
		most = max(most, s.whole)
	}
	if most == 0 {
		return ""
	}
	legend := (len(names) + 3) / 4 * 18
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img">`, chartWidth, len(list)*barHeight+legend+4)
	for i, s := range list {
		y, left := i*barHeight, 0.0
		text(&b, 0, y+12, short(s.label, 46), duration(s.whole), s.label)
		for j, name := range names {
			width := (chartWidth - 6) * s.parts[name] / most
			if width > 0 {
				fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="11" fill="%s"><title>%s %s</title></rect>`, left, y+17, width, stackColours[j%len(stackColours)], template.HTMLEscapeString(name), duration(s.parts[name]))
			}
			left += width
		}
	}
	for j, name := range names {
		x, y := j%4*90, len(list)*barHeight+4+j/4*18
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="11" height="11" fill="%s"/><text x="%d" y="%d">%s</text>`, x, y, stackColours[j%len(stackColours)], x+15, y+10, template.HTMLEscapeString(name))
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

// duration is seconds in a unit that shows them with three digits.
func duration(s float64) string {
	switch {
	case s >= 1:
		return fmt.Sprintf("%.3g s", s)
	case s >= 1e-3:
		return fmt.Sprintf("%.3g ms", s*1e3)
	}
	return fmt.Sprintf("%.3g µs", s*1e6)
}

// SVG is the result's bars by part as a picture of its own; ErrArgument where the experiment names no parts.
func (r *Result) SVG() (string, error) {
	s := string(stacked(r.Rows))
	if s == "" {
		return "", fmt.Errorf("simulate: %s has no stages to draw: %w", r.ID, ErrArgument)
	}
	head := `<svg xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif" font-size="11" fill="#1c2733" `
	s = strings.Replace(s, "<svg ", head, 1)
	end := strings.Index(s, ">") + 1
	return s[:end] + `<rect width="100%" height="100%" fill="#ffffff"/>` + s[end:] + "\n", nil
}
