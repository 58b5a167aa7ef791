package eval

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/task"
)

// Without samples to score, the error names the flag that is given, or --all where it helps.
func TestDataWithoutSamplesAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.csv")
	if err := os.WriteFile(path, []byte("text,label\na,b\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	o := task.Options{Settings: map[string]string{"data": path}, ScoreOnly: true}
	src, err := task.Open("file", o)
	for ; err == nil && src.Spec().Count[task.Train] == 0; o.Seed++ {
		src, err = task.Open("file", o)
	}
	if err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]Command{
		"--data: file has no samples to validate by; --all scores everything": {},
		"--split: file has no samples to validate by":                         {Split: "valid"},
		"--data: file has no samples":                                         {All: true},
	} {
		if err := c.evaluate(nil, &Report{}, nil, src); err == nil || err.Error() != want {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
}

func TestScoreIsPrintedWhereBaselinesFail(t *testing.T) {
	src, err := task.Open("copy", task.Options{})
	if err != nil {
		t.Fatal(err)
	}
	spec := src.Spec()
	for _, isJSON := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, x := range []struct {
			note      string
			baselines func() ([]task.Baseline, error)
			want      error
		}{
			{"x.wav: is damaged", func() ([]task.Baseline, error) { return nil, errors.New("x.wav:\nis damaged") }, nil},
			{"interrupted", func() ([]task.Baseline, error) {
				cancel()
				select {}
			}, context.Canceled},
		} {
			var out bytes.Buffer
			c, r := Command{JSON: isJSON}, &Report{Split: spec.JudgedSplit().String()}
			r.Metric, r.Value = task.Accuracy, 0.75
			want := []string{"accuracy 0.7500", "baselines   none: " + x.note}
			if isJSON {
				want = []string{`"score":0.75`, `"baselines_error":"` + x.note}
			}
			if err := c.judge(&env.Env{Context: ctx, Stdout: &out, Stderr: io.Discard}, r, src, x.baselines); err != x.want {
				t.Errorf("%s: error is %v", x.note, err)
			}
			for _, s := range want {
				if !strings.Contains(strings.ReplaceAll(out.String(), `": `, `":`), s) {
					t.Errorf("%q is not in\n%s", s, out.String())
				}
			}
		}
	}
}
