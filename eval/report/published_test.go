package report

import (
	"encoding/csv"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestPublishedCaption: the caption of the published picture of LongBench says which series are worse than full, and which better, as the
// intervals of the table that it stands below do.
func TestPublishedCaption(t *testing.T) {
	raw, err := os.ReadFile("../../docs/benchmarks/longbench.svg")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open("../../docs/benchmarks/longbench.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	key := regexp.MustCompile(`>(\d+) ([a-z_0-9]+)(?: ([\d.]+))?</text>`).FindAllStringSubmatch(string(raw), -1)
	if len(key) < 10 {
		t.Fatalf("%d series have names", len(key))
	}
	var worse, better, open []string
	for _, k := range key {
		name := k[2]
		if k[3] != "" {
			name += ":budget=" + k[3]
		}
		for _, row := range rows {
			if row[0] != rows[1][0] || row[1] != name {
				continue
			}
			_, interval, _ := strings.Cut(strings.TrimSuffix(row[3], ")"), "(")
			a, b, ok := strings.Cut(interval, " … ")
			if !ok {
				continue // full itself
			}
			low, err := strconv.ParseFloat(a, 64)
			high, err2 := strconv.ParseFloat(b, 64)
			if err != nil || err2 != nil {
				t.Fatalf("%s: %q", name, row[3])
			}
			switch {
			case high < 0:
				worse = append(worse, k[1])
			case low > 0:
				better = append(better, k[1])
			default:
				open = append(open, k[1])
			}
		}
	}
	if n := len(worse) + len(better) + len(open); n != len(key)-1 {
		t.Errorf("%d of %d series are in the table", n, len(key)-1)
	}
	want := fmt.Sprintf("Worse than full: %s; better: %s; not told apart: %s.", numbers(worse), numbers(better), numbers(open))
	if !strings.Contains(string(raw), want) {
		t.Errorf("the picture does not say %q", want)
	}
}
