package main

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/cli/eval"
	"github.com/farfield-ml/farfield/internal/cli/score"
	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/rng"
)

// oddKinds are the anomalies of a made log.
var oddKinds = []string{"message", "level", "number", "address", "garbled", "cut", "trace", "repeated", "host"}

// madeLog returns lines of a service, and for each the kind of its anomaly, -1 where it
// has none. One line in every is odd; 0: none is.
func madeLog(seed uint64, n, every int) (lines []string, kinds []int) {
	key := rng.New(seed)
	i := uint64(0)
	draw := func(n int) int { i++; return key.Intn(i, n) }
	for k := range n {
		at := fmt.Sprintf("2026-03-%02d %02d:%02d:%02d", 1+k/86400%28, k/3600%24, k/60%60, k%60)
		templates := []string{
			fmt.Sprintf("INFO web request %d served in %d ms", draw(9000), 2+draw(90)),
			fmt.Sprintf("INFO cache hit ratio 0.%02d", 80+draw(20)),
			fmt.Sprintf("DEBUG worker %d took job %06x from queue mail", draw(16), draw(1<<24)),
			fmt.Sprintf("INFO user u%d logged in from 10.0.%d.%d", draw(500), draw(256), draw(256)),
			fmt.Sprintf("WARN disk sda%d usage %d %%", 1+draw(3), 60+draw(20)),
			"INFO checkpoint done",
			fmt.Sprintf("INFO batch %d sent: %s", draw(100), strings.Trim(strings.Repeat(fmt.Sprintf("id=%08x ", draw(1<<30)), 4+draw(12)), " ")),
			"",
		}
		text, kind := templates[draw(len(templates)*4)%len(templates)], -1
		if every > 0 && draw(every) == 0 {
			kind = draw(len(oddKinds))
			switch oddKinds[kind] {
			case "message":
				text = []string{"FATAL disk sda1 is gone", "ERROR out of memory: killed process 4711", "ERROR certificate expired"}[draw(3)]
			case "level":
				text = "ERROR cache hit ratio 0.91"
			case "number":
				text = fmt.Sprintf("INFO web request %d served in %d ms", draw(9000), 60000+draw(40000))
			case "address":
				text = fmt.Sprintf("INFO user u%d logged in from 203.%d.113.%d", draw(500), 1+draw(200), draw(256))
			case "garbled":
				text = strings.Map(func(r rune) rune {
					if draw(4) == 0 {
						return rune(33 + draw(90))
					}
					return r
				}, "INFO user u123 logged in from 10.0.17.4")
			case "cut":
				text = "DEBUG worker 1"
			case "trace":
				text = "  at com.example.Main.run(Main.java:117)"
			case "repeated":
				text = "INFO INFO INFO checkpoint checkpoint done done"
			case "host":
				text = "INFO user root logged in from evil.example.org"
			}
		}
		switch {
		case text == "":
		case kind >= 0 && oddKinds[kind] == "trace":
		default:
			text = at + " " + text
		}
		lines, kinds = append(lines, text), append(kinds, kind)
	}
	return lines, kinds
}

// templates are the baseline: how rare a line's template is, digits aside, plus its
// rarest word.
type templates struct {
	lines, words map[string]float64
	n, all       float64
}

// digitRuns are numbers, decimal or hexadecimal.
var digitRuns = regexp.MustCompile(`\b[0-9a-f]*[0-9][0-9a-f]*\b`)

func mask(text string) string { return digitRuns.ReplaceAllString(text, "0") }

func learnTemplates(lines []string) *templates {
	b := &templates{lines: map[string]float64{}, words: map[string]float64{}}
	for _, l := range lines {
		l = mask(l)
		b.lines[l]++
		b.n++
		for _, w := range strings.Fields(l) {
			b.words[w]++
			b.all++
		}
	}
	return b
}

func (b *templates) surprise(text string) float64 {
	text = mask(text)
	worst := 0.0
	for _, w := range strings.Fields(text) {
		worst = max(worst, -math.Log2((b.words[w]+0.5)/(b.all+1)))
	}
	return worst - math.Log2((b.lines[text]+0.5)/(b.n+1))
}

// averagePrecision ranks lines by surprise and returns the mean precision at the odd
// lines. If n lines are odd, found has the share of each kind's odd lines among the
// first n lines.
func averagePrecision(surprise []float64, kinds []int) (ap float64, found []float64) {
	order := make([]int, len(kinds))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case surprise[a] > surprise[b]:
			return -1
		case surprise[a] < surprise[b]:
			return 1
		}
		return 0
	})
	odd := 0
	count, hits := make([]float64, len(oddKinds)), make([]float64, len(oddKinds))
	for _, k := range kinds {
		if k >= 0 {
			odd++
			count[k]++
		}
	}
	seen := 0
	for i, k := range order {
		if kinds[k] < 0 {
			continue
		}
		seen++
		ap += float64(seen) / float64(i+1) / float64(odd)
		if i < odd {
			hits[kinds[k]]++
		}
	}
	for k := range count {
		found = append(found, hits[k]/max(count[k], 1))
	}
	return ap, found
}

// evaluated returns the report of eval.
func evaluated(t *testing.T, text string) (r eval.Report) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return r
}

// A text far beyond the trained context has about the bits that eval measures in windows of it.
// Bits per byte find odd lines where total bits rank long lines first. The figures of
// docs/command.md are measured with -long.
func TestRankByByteFindsOddLines(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("trains a model")
	}
	size, test, steps := 1500, 1000, "120"
	if suite.IsLong() {
		size, test, steps = 20000, 20000, "600"
	}
	dir := t.TempDir()
	good, log, model := filepath.Join(dir, "good.log"), filepath.Join(dir, "log"), filepath.Join(dir, "model")
	train, _ := madeLog(1, size, 0)
	lines, kinds := madeLog(2, test, 100)
	wrote(t, good, strings.Join(train, "\n")+"\n")
	wrote(t, log, strings.Join(lines, "\n")+"\n")
	works(t, "train", "--data", good, "--preset", "tiny", "--steps", steps, "--sample-tokens", "0", "--out", model, "--quiet")
	report := scored(t, works(t, "score", "--model", model, "--json", "--top", fmt.Sprint(test), log))
	// The windows of eval do not overlap, so its first tokens are predicted from fewer.
	whole := evaluated(t, works(t, "eval", "--model", model, "--data", log, "--all", "--json"))
	if most := 1.02 * whole.Bits; report.BitsPerByte > most || report.BitsPerByte < 0.8*whole.Bits || report.ContextWindow != 64 {
		t.Errorf("%v bits per byte in windows of %d, eval has %v", report.BitsPerByte, report.ContextWindow, whole.Bits)
	}
	total, byByte, plain, floor := make([]float64, test), make([]float64, test), make([]float64, test), make([]float64, test)
	for _, x := range report.Top {
		i := x.Number - 1
		total[i] = x.Bits
		byByte[i] = (&score.Command{Rank: "byte"}).RankLine(x.LineScore)
		plain[i] = x.PerByte()
	}
	base := learnTemplates(train)
	for i, l := range lines {
		floor[i] = base.surprise(l)
	}
	aps := map[string]float64{}
	for _, r := range []struct {
		name     string
		surprise []float64
	}{{"total", total}, {"byte", byByte}, {"byte, short lines as they are", plain}, {"templates and rare words", floor}} {
		ap, found := averagePrecision(r.surprise, kinds)
		aps[r.name] = ap
		t.Logf("%-30s average precision %.2f", r.name, ap)
		for k, share := range found {
			t.Logf("    %-10s %.2f", oddKinds[k], share)
		}
	}
	if aps["byte"] <= aps["total"]+0.1 {
		t.Errorf("average precision by bits a byte is %.2f, by total bits %.2f", aps["byte"], aps["total"])
	}
}
