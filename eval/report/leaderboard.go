package report

import (
	"cmp"
	_ "embed"
	"encoding/csv"
	"fmt"
	"html/template"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"terrace/eval"
)

//go:embed leaderboard.html
var leaderboardText string

// leaderboardPage has the page's templates beside its own.
var leaderboardPage = sync.OnceValue(func() *template.Template {
	return template.Must(parsePage().New("leaderboard").Parse(leaderboardText))
})

// Leaderboard ranks methods at equal bytes of KV, a board for each model, suite and settings.
type Leaderboard struct {
	Boards []*Board
	Points []BytesPoint // the columns
	Runs   []Run

	against string
}

// Board is a table of one model at one set of settings.
type Board struct {
	Title    string   // model, suite, tokens of a sample
	Notes    []string // what was not compared, and why
	Complete bool     // every run was
	Full     BoardCell
	Rows     []BoardRow // by falling score at the middle point, methods without one last

	group        *Group // its series as they were run
	model, apart string
	tokens       string // of a sample, as the outcomes' label has it
}

// BoardRow is a method: a policy without its budget.
type BoardRow struct {
	Method, Class, Path string      // the name, and its marker
	Cells               []BoardCell // by point
}

// BoardCell is a method at a point.
type BoardCell struct {
	// Missing says at which shares of the bytes the method was run where they do not lie on both sides of the point; "" where they do, and
	// the other fields hold.
	Missing string
	// Score is the mean of tasks in percent, on the samples that the reference answered too, with its 95 % bootstrap interval (both ends the
	// mean with fewer than pairsMin samples); Diff what it is more than the reference's on them, nil with fewer.
	Score      estimate
	Diff       *Interval
	N, Of      int          // samples that both have, samples that either has
	Failed     int          // of them; they count 0
	Held, Read float64      // bytes, means: KV held while answering; what a step reads, choosing included
	Parts      []PolicyPart // the settings that were run, and their weights
}

// NewLeaderboard ranks the methods of runs at points of the bytes that the policy against has. Each model and each set of settings has a
// board of its own. [ErrNothing] where a run has scores that are no percentages, samples of several lengths, or no series of against whose
// bytes are known, and where two have one policy of one model under one set of settings.
func NewLeaderboard(runs []Run, against string, points []BytesPoint) (*Leaderboard, error) {
	l := &Leaderboard{Points: points, Runs: runs, against: against}
	names := modelNames(runs)
	var order []string
	of := map[string][]Run{}
	for i, r := range runs {
		if _, seen := of[names[i]]; !seen {
			order = append(order, names[i])
		}
		of[names[i]] = append(of[names[i]], r)
	}
	for _, model := range order {
		compared, err := Compare(of[model], against)
		if err != nil {
			return nil, fmt.Errorf("%w (%s)", err, model)
		}
		for _, g := range compared.Groups {
			b, err := newBoard(model, g, points)
			if err != nil {
				return nil, err
			}
			l.Boards = append(l.Boards, b)
		}
	}
	return l, nil
}

// modelNames are the runs' models; those of one name and other weights are told apart.
func modelNames(runs []Run) []string {
	prints := map[string]string{}
	apart := map[string]bool{}
	for _, r := range runs {
		m := r.Results.Options.Model
		name := filepath.Base(m.Name)
		if p, seen := prints[name]; seen && p != m.Fingerprint {
			apart[name] = true
		}
		prints[name] = m.Fingerprint
	}
	out := make([]string, len(runs))
	for i, r := range runs {
		m := r.Results.Options.Model
		if out[i] = filepath.Base(m.Name); apart[out[i]] {
			out[i] += "@" + shortPrint(m.Fingerprint)
		}
	}
	return out
}

// taskSamplesMin is how many samples of a task a board has without a note: the bootstrap's variance of n is (n−1)/n of the truth.
const taskSamplesMin = 5

// newBoard ranks a group of one model.
func newBoard(model string, g *Group, points []BytesPoint) (*Board, error) {
	b := &Board{group: g, model: model, apart: g.Apart, Notes: g.Notes}
	b.Complete = !slices.ContainsFunc(g.Series, func(s *Series) bool { return !s.run.Results.Complete })
	if err := b.check(); err != nil {
		return nil, err
	}
	b.Title = model + " · " + g.Suite
	if b.tokens != "" {
		b.Title += ", " + b.tokens + " tokens"
	}
	if g.Apart != "" && b.tokens == "" {
		b.Title += " (" + g.Apart + ")"
	}
	base := g.base(g.Series[0])
	b.Full = cellOf(base, base, g.Metric)
	_, own := difference(base.outcomes, base.outcomes, g.Metric)
	for _, task := range own.scores {
		if len(task) < taskSamplesMin {
			b.Notes = append(b.Notes, fmt.Sprintf("%d samples a task: the bootstrap draws within tasks, and of so few it makes intervals that are too narrow", len(task)))
			break
		}
	}
	styles := charts{g}.styles()
	lines := slices.DeleteFunc(g.lines(), func(line []*Series) bool { return line[0].canonical == base.canonical })
	for _, line := range lines {
		st := styles[line[0].family]
		b.Rows = append(b.Rows, BoardRow{Method: lineOf(line[0].Policy), Class: st.class, Path: marker(st.shape, 7, 7, 5)})
	}
	for _, p := range points {
		at, _ := g.atBytes(p)
		for i, line := range lines {
			var c BoardCell
			if s := at.of(line); s != nil {
				c = cellOf(base, s, g.Metric)
			} else if known := p.sorted(line); known != nil {
				c.Missing = p.span(known, p.bytes(base))
			} else {
				c.Missing = "unknown bytes"
			}
			b.Rows[i].Cells = append(b.Rows[i].Cells, c)
		}
	}
	middle := len(points) / 2
	slices.SortStableFunc(b.Rows, func(x, y BoardRow) int {
		return cmp.Compare(y.Cells[middle].rank(), x.Cells[middle].rank())
	})
	return b, nil
}

// check refuses a group that makes no board, and finds its samples' length.
func (b *Board) check() error {
	g := b.group
	if g.Metric.Kind != eval.Percent {
		return fmt.Errorf("report: %s of %s is scored in %s: a leaderboard ranks percentages: %w", g.Suite, b.model, g.Metric.Name, ErrNothing)
	}
	seen := map[string]*Series{}
	for _, s := range g.Series {
		if twin := seen[s.canonical]; twin != nil {
			return fmt.Errorf("report: %s of %s is there twice, in runs %s and %s: a leaderboard takes each policy of a model once: %w", s.Policy, b.model, twin.Run, s.Run, ErrNothing)
		}
		seen[s.canonical] = s
		for _, o := range s.outcomes {
			n := o.Labels["context"]
			if b.tokens != "" && n != "" && n != b.tokens {
				return fmt.Errorf("report: run %s has samples of %s and of %s tokens: a board is of one length: run each into a folder of its own: %w", s.Run, b.tokens, n, ErrNothing)
			}
			if n != "" {
				b.tokens = n
			}
		}
	}
	base := seen[canonical(g.Against)]
	if base == nil {
		return fmt.Errorf("report: %s of %s has no series of %s with these settings (run %s): %w", g.Suite, b.model, g.Against, g.Series[0].Run, ErrNothing)
	}
	if base.KVRead <= 0 || total(base.KVHeld) <= 0 {
		return fmt.Errorf("report: run %s does not say how many bytes %s holds and reads: a leaderboard is of equal bytes: %w", base.Run, base.Policy, ErrNothing)
	}
	return nil
}

// of is the series at a point that a line's settings make; nil where there is none.
func (g *Group) of(line []*Series) *Series {
	for _, s := range g.Series {
		if slices.ContainsFunc(line, func(l *Series) bool { return l.Policy == s.Between[0].Policy }) {
			return s
		}
	}
	return nil
}

// cellOf measures a series against base.
func cellOf(base, s *Series, m eval.Metric) BoardCell {
	d, p := difference(base.outcomes, s.outcomes, m)
	c := BoardCell{N: p.n, Of: max(len(base.outcomes), len(s.outcomes)), Failed: s.Failed, Held: float64(total(s.KVHeld)), Read: s.KVRead, Parts: s.Between}
	if s != base {
		c.Diff = d
	}
	for _, task := range p.scores {
		c.Score.Mean += 100 * average(task, nil) / float64(len(p.scores))
	}
	c.Score.Low, c.Score.High = c.Score.Mean, c.Score.Mean
	if own := interval(100, p.scores, p.n); own != nil {
		c.Score.Low, c.Score.High = own.Low, own.High
	}
	return c
}

// rank is the score, below all others where there is none.
func (c BoardCell) rank() float64 {
	if c.Missing != "" {
		return -1
	}
	return c.Score.Mean
}

// ScoreText is the score.
func (c BoardCell) ScoreText() string { return fmt.Sprintf("%.1f", c.Score.Mean) }

// RangeText is the score's interval, or why there is none.
func (c BoardCell) RangeText() string {
	if c.N < pairsMin {
		return "no interval"
	}
	return fmt.Sprintf("%.1f … %.1f", c.Score.Low, c.Score.High)
}

// DiffText is what the score is more than the reference's.
func (c BoardCell) DiffText() string {
	if c.Diff == nil {
		return "–"
	}
	return fmt.Sprintf("%+.1f (%+.1f … %+.1f)", c.Diff.Diff, c.Diff.Low, c.Diff.High)
}

// Verdict is worse or better where the difference's whole interval is, else "".
func (c BoardCell) Verdict() string {
	switch {
	case c.Diff == nil || c.Diff.Low <= 0 && c.Diff.High >= 0:
		return ""
	case c.Diff.High < 0:
		return "worse"
	}
	return "better"
}

// Short reports whether samples are missing on one side.
func (c BoardCell) Short() bool { return c.N < c.Of }

// HeldText are the bytes held.
func (c BoardCell) HeldText() string { return bytesText(int64(c.Held)) }

// ReadText are the bytes that a step reads.
func (c BoardCell) ReadText() string { return bytesText(int64(c.Read)) }

// PartsText names the settings that a cell is made of, with their weights where there are two.
func (c BoardCell) PartsText() string {
	var out []string
	for _, p := range c.Parts {
		if text := budgetOf(p.Policy); len(c.Parts) == 1 {
			out = append(out, text)
		} else {
			out = append(out, percentText(p.Weight)+" of "+text)
		}
	}
	return strings.Join(out, ", ")
}

// boardView is a board as the page shows it.
type boardView struct {
	*Board
	Against string
	Points  []BytesPoint
	Charts  []*frontChart
	Series  pageGroup
}

// Label heads a point's column.
func (p BytesPoint) Label() string {
	if p.Read {
		return percentText(p.Share) + " read"
	}
	return percentText(p.Share) + " held"
}

// WriteHTML writes the page: one file, nothing else needed. Its script sorts tables; without it they stay as they are.
func (l *Leaderboard) WriteHTML(w io.Writer, title string) error {
	d := struct {
		Title, Against string
		Style          template.CSS
		Boards         []boardView
		Made           []made
	}{Title: title, Style: template.CSS(pageStyle), Against: l.against}
	for _, b := range l.Boards {
		d.Boards = append(d.Boards, boardView{Board: b, Against: b.group.Against, Points: l.Points, Charts: charts{b.group}.budgetCharts(),
			Series: pageGroup{Against: b.group.against(), Rows: b.group.rows()}})
	}
	var err error
	if d.Made, err = madeOf(l.Runs); err != nil {
		return err
	}
	if err := leaderboardPage().ExecuteTemplate(w, "leaderboard", d); err != nil {
		return fmt.Errorf("report: leaderboard: %w", err)
	}
	return nil
}

// WriteCSV writes a line for each board, method and point, and one for the reference at all bytes: scores and differences in percent with
// 95 % intervals, bytes, and the settings that were run with their weights. What was not run has its reason in the last column.
func (l *Leaderboard) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	rows := [][]string{{"model", "suite", "tokens", "settings", "method", "measure", "share", "score", "score_low", "score_high", "diff", "diff_low", "diff_high",
		"n", "of", "failed", "kv_held_bytes", "kv_read_bytes", "made_of", "not_run"}}
	f := func(v float64) string { return strconv.FormatFloat(v, 'f', 4, 64) }
	for _, b := range l.Boards {
		line := func(method, measure string, share float64, c BoardCell) {
			row := []string{b.model, b.group.Suite, b.tokens, b.apart, method, measure, strconv.FormatFloat(share, 'g', 4, 64)}
			if c.Missing != "" {
				rows = append(rows, append(row, "", "", "", "", "", "", "", "", "", "", "", "", "run at "+c.Missing))
				return
			}
			row = append(row, f(c.Score.Mean), f(c.Score.Low), f(c.Score.High))
			if d := c.Diff; d != nil {
				row = append(row, f(d.Diff), f(d.Low), f(d.High))
			} else {
				row = append(row, "", "", "")
			}
			rows = append(rows, append(row, strconv.Itoa(c.N), strconv.Itoa(c.Of), strconv.Itoa(c.Failed), strconv.FormatFloat(c.Held, 'f', 0, 64), strconv.FormatFloat(c.Read, 'f', 0, 64), c.PartsText(), ""))
		}
		line(b.group.Against, "", 1, b.Full)
		for _, r := range b.Rows {
			for i, c := range r.Cells {
				line(r.Method, l.Points[i].verb(), l.Points[i].Share, c)
			}
		}
	}
	if err := out.WriteAll(rows); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
