package train

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
)

func TestHistoryLeavesOutAnUnfinishedLine(t *testing.T) {
	t.Parallel()
	const rows = `{"step":1,"loss":2.5,"lr":0.1,"grad_norm":1}
{"step":1,"eval":"windows","loss":2.25,"tokens":7,"bytes":7,"elapsed_s":3}
{"step":2,"loss":2,"lr":0.2`
	h, err := readHistory(strings.NewReader(rows))
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Steps) != 1 || len(h.Evals) != 1 || h.Steps[0].Rate != 0.1 || h.Evals[0].Loss != 2.25 || h.Evals[0].Tokens != 7 {
		t.Errorf("%+v", h)
	}
	for _, bad := range []string{"{}\nnone\n", "{\"step\":\"x\"}\n", "{\"eval\":1}\n", strings.Repeat(" ", maxRowBytes) + "\n"} {
		if _, err := readHistory(strings.NewReader(bad)); err == nil || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
}

func TestReadHistoryReadsAGrowingFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, metricsFile)
	if h, err := ReadHistory(dir); h != nil || !os.IsNotExist(err) {
		t.Errorf("no metrics: %v, %v", h, err)
	}
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("{\"step\":1,\"loss\":2.5}\n{\"step\":1,\"eval\":\"look\",\"score\":0.5}\n{\"step\":2")
	if h, err := ReadHistory(dir); err != nil || len(h.Steps) != 1 || h.Steps[0].Loss != 2.5 || len(h.Evals) != 1 || h.Evals[0].Value != 0.5 {
		t.Errorf("%+v, %v", h, err)
	}
	if steps, evals, err := ReadMetrics(dir); err != nil || len(steps) != 1 || len(evals) != 1 {
		t.Errorf("half a row at the end: %v, %v, %v", steps, evals, err)
	}
	write("{}\nnone\n")
	if _, err := ReadHistory(dir); err == nil || !strings.HasPrefix(err.Error(), path+": line 2: invalid character") {
		t.Errorf("no row: %v", err)
	}
	write("{}\n" + strings.Repeat(" ", maxRowBytes+1))
	if _, _, err := ReadMetrics(dir); err == nil || err.Error() != path+": line 2: has more than 65536 bytes" {
		t.Errorf("an endless row: %v", err)
	}
	if err := os.Truncate(path, maxMetricsBytes+1); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadHistory(dir); err == nil || !strings.HasPrefix(err.Error(), path+": has more than 1073741824 bytes") {
		t.Errorf("an endless file: %v", err)
	}
}

func TestRowsHaveChecksums(t *testing.T) {
	t.Parallel()
	row := string(appendChecksum([]byte(`{"step":1,"loss":2.5}`)))
	if h, err := readHistory(strings.NewReader(row + "\n")); err != nil || len(h.Steps) != 1 || h.Steps[0].Loss != 2.5 {
		t.Errorf("%s: %v", row, err)
	}
	damaged := strings.Replace(row, "2.5", "2.4", 1)
	if _, err := readHistory(strings.NewReader(row + "\n" + damaged + "\n")); err == nil || !strings.HasPrefix(err.Error(), "line 2: damaged: its CRC-32C is ") {
		t.Errorf("%s: %v", damaged, err)
	}
}

func FuzzHistory(f *testing.F) {
	f.Add("{\"step\":1,\"loss\":2.5}\n{\"step\":1,\"eval\":\"windows\"}\n")
	f.Add("{\"eval\":null}\n[1]\n")
	f.Add(string(appendChecksum([]byte(`{"step":1}`))) + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		var h *History
		var err error
		if n := check.AllocatedBytes(func() { h, err = readHistory(strings.NewReader(text)) }); n > 4<<20+512*int64(len(text)) {
			t.Errorf("%d bytes are read in %d bytes of memory", len(text), n)
		}
		if err == nil && len(h.Steps)+len(h.Evals) != strings.Count(text, "\n") {
			t.Errorf("%d and %d rows of %d lines", len(h.Steps), len(h.Evals), strings.Count(text, "\n"))
		}
	})
}
