package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"terrace/eval/metrics"
)

func init() {
	register(newScore)
}

type scoreCommand struct {
	*app

	task string
}

func newScore(a *app) *cobra.Command {
	c := &scoreCommand{app: a}
	cmd := &cobra.Command{
		Use:     "score --task TASK < predictions.jsonl",
		Short:   "Score LongBench predictions with the official metrics",
		Long:    "Each line of standard input, {\"pred\",\"answers\",\"all_classes\",\"length\"}, becomes a line {\"score\": 0..1} by the task's official metric; the mean in percent goes to stderr, with LongBench-E's length buckets where lengths are given.",
		Example: "  infer score --task hotpotqa < pred/smollm2/hotpotqa.jsonl",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, args []string) error { return c.run() },
	}
	cmd.Flags().StringVar(&c.task, "task", "", "LongBench task: "+strings.Join(metrics.LongBenchTasks(), ", "))
	return cmd
}

func (c *scoreCommand) run() error {
	if c.task == "" {
		return usageErrorf("score needs --task")
	}
	name, err := metrics.MetricName(c.task)
	if errors.Is(err, metrics.ErrTask) {
		return usageErrorf("--task: %w", err)
	}
	in, out := bufio.NewReaderSize(c.stdin, 1<<20), bufio.NewWriter(c.stdout)
	defer out.Flush()
	var scores []float64
	buckets := map[string][]float64{}
	for line := 1; ; line++ {
		raw, err := readLine(in)
		if err != nil && err != io.EOF {
			return fmt.Errorf("standard input, line %d: %w", line, err)
		}
		end := err == io.EOF
		if len(strings.TrimSpace(string(raw))) > 0 {
			row, s, err := scoreLine(c.task, raw)
			if err != nil {
				return dataErrorf("standard input, line %d: %w", line, err)
			}
			fmt.Fprintf(out, "{\"score\": %v}\n", s)
			scores = append(scores, s)
			if row.Length > 0 {
				buckets[metrics.Bucket(row.Length)] = append(buckets[metrics.Bucket(row.Length)], s)
			}
		}
		if end {
			break
		}
	}
	if len(scores) == 0 {
		return dataErrorf("standard input holds no predictions")
	}
	c.notice("%s (%s): %.2f over %d rows%s", c.task, name, metrics.Percent(scores), len(scores), bucketText(buckets))
	return nil
}

// scoreLine scores one JSON line; pred and answers must be there.
func scoreLine(task string, raw []byte) (metrics.Row, float64, error) {
	var row struct {
		metrics.Row
		Pred    *string   `json:"pred"`
		Answers *[]string `json:"answers"`
	}
	if err := json.Unmarshal(raw, &row); err != nil {
		return row.Row, 0, err
	}
	if row.Pred == nil || row.Answers == nil {
		return row.Row, 0, fmt.Errorf("want an object with pred and answers")
	}
	row.Row.Pred, row.Row.Answers = *row.Pred, *row.Answers
	s, err := metrics.LongBench(task, row.Row)
	return row.Row, s, err
}

func bucketText(buckets map[string][]float64) string {
	var parts []string
	for _, b := range metrics.Buckets {
		if s := buckets[b]; len(s) > 0 {
			parts = append(parts, fmt.Sprintf("%s %.2f", b, metrics.Percent(s)))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "; " + strings.Join(parts, ", ")
}
