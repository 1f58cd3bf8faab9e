package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"sync"
)

//go:embed picture.svg
var pictureText string

// picture has the page's templates beside its own. They are parsed again: a template that was executed has no clones.
var picture = sync.OnceValue(func() *template.Template {
	return template.Must(parsePage().New("picture").Parse(pictureText))
})

// pictureData is what the template shows: charts side by side, and below them what the numbers mean.
type pictureData struct {
	Title, Note   string
	Verdict       string // which series are worse than the policy that they are measured against
	Style         template.CSS
	Width, Height float64
	Charts        []placedChart
	Keys          []pictureKey
}

type placedChart struct {
	X, Y  float64
	Chart *frontChart
}

type pictureKey struct {
	X, Y              float64
	Class, Path, Text string
}

const (
	pictureGap     = 24 // between charts
	pictureTop     = 44 // above charts: their titles
	keyColumns     = 4
	keyHeight      = 18
	pictureMargins = 12
)

// WritePicture writes the Pareto fronts of a group as one SVG file that needs nothing else and follows the reader's light or
// dark mode.
func (g *Group) WritePicture(w io.Writer, note string) error {
	draw := charts{g}
	fronts := draw.fronts()
	if len(fronts) > 2 {
		fronts = fronts[:2] // time to the first token and memory
	}
	if len(fronts) == 0 {
		return fmt.Errorf("report: %s: fewer than two series have a score and a cost: %w", g.Suite, ErrNothing)
	}
	d := pictureData{Title: g.Suite + ", " + unit(g.Metric), Note: note, Style: template.CSS(pageStyle)}
	for i, c := range fronts {
		d.Charts = append(d.Charts, placedChart{X: float64(pictureMargins + i*(chartWidth+pictureGap)), Y: pictureTop, Chart: c})
	}
	d.Width = float64(2*pictureMargins + len(fronts)*(chartWidth+pictureGap) - pictureGap)
	keys := pictureTop + fronts[0].Height + 10
	styles := draw.styles()
	columns := min(keyColumns, 2*len(fronts))
	rows := (len(g.Series) + columns - 1) / columns
	for i, s := range g.Series {
		x, y := pictureMargins+float64(i/rows)*(d.Width-2*pictureMargins)/float64(columns), keys+float64(i%rows*keyHeight)
		st := styles[s.family]
		d.Keys = append(d.Keys, pictureKey{X: x + 16, Y: y + 4, Class: st.class, Path: marker(st.shape, x+6, y, 5), Text: fmt.Sprintf("%d %s", s.Number, brief(s.Label))})
	}
	d.Verdict = draw.verdict(func(s *Series) *Interval { return s.Diff })
	d.Height = keys + float64(rows*keyHeight) + 18
	if d.Verdict != "" {
		d.Height += 16
	}
	if err := picture().ExecuteTemplate(w, "picture", d); err != nil {
		return fmt.Errorf("report: picture: %w", err)
	}
	return nil
}
