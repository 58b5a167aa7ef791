package peers

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/bench"
)

// TestMain is a peer instead of the tests if the environment says so.
func TestMain(m *testing.M) {
	if speed := os.Getenv("PEERS_TEST_MS"); speed != "" {
		bePeer(speed)
		return
	}
	os.Exit(m.Run())
}

// bePeer answers each case with ms milliseconds, and fails for width 13.
func bePeer(ms string) {
	if ms == "none" {
		fmt.Fprintln(os.Stderr, "Traceback:\nno module named torch")
		return
	}
	fmt.Printf(`{"impl":"peer 1.0","settings":"ms=%s"}`+"\n", ms)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var q question
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil || q.Budget <= 0 {
			os.Exit(1)
		}
		if q.D == 13 {
			fmt.Println(`{"error":"unlucky"}`)
			continue
		}
		fmt.Sscan(ms, &q.Ms)
		q.GFLOPS = 5
		text, _ := json.Marshal(q.Line)
		text = bytes.Replace(text, []byte(`"peak_gflops":0`), []byte(`"peak_gflops":null`), 1)
		fmt.Printf("%s\n", text)
	}
}

func peerOf(ms ...string) []command {
	var list []command
	for _, x := range ms {
		list = append(list, command{args: []string{os.Args[0]}, env: []string{"PEERS_TEST_MS=" + x}, settings: "libs"})
	}
	return list
}

func TestSectionsAreWhole(t *testing.T) {
	for _, long := range []bool{false, true} {
		names := map[string]bool{}
		for _, s := range allSections(long) {
			for _, c := range s.cells {
				if names[c.name()] {
					t.Errorf("%s is there twice", c.name())
				}
				names[c.name()] = true
				if len(c.keys) != len(s.keys) {
					t.Errorf("%s has %d keys, its table %d", c.name(), len(c.keys), len(s.keys))
				}
				in := map[string]bool{}
				for _, x := range c.contestants {
					if in[x.name] {
						t.Errorf("%s: %s takes part twice", c.name(), x.name)
					}
					in[x.name] = true
					if x.line.Impl != farfield {
						continue
					}
					if _, err := caseOf(x.line); err != nil {
						t.Errorf("%s: %s: %v", c.name(), x.name, err)
					}
				}
				if c.contestants[0].line.Impl != farfield {
					t.Errorf("%s: the peak of %s is not measured before it", c.name(), c.contestants[0].name)
				}
				for _, k := range s.columns {
					if !in[k.contestant] || k.baseline != "" && !in[k.baseline] {
						t.Errorf("%s: column %s is about %q and %q, which do not take part", c.name(), k.title, k.contestant, k.baseline)
					}
					if (k.baseline == "") == (k.show == "") {
						t.Errorf("%s: column %s shows %q and divides by %q", c.name(), k.title, k.show, k.baseline)
					}
				}
			}
		}
		for _, want := range []string{"forward/16/64", "causal/128/4096", "polynomials/64/4096", "features/128/16384", "backward/causal/64/4096", "threads/32/1024", "training/1024"} {
			if !names[want] {
				t.Errorf("%s is missing", want)
			}
		}
		if names["forward/16/16384"] != long {
			t.Errorf("long: %t, but the longest is there: %t", long, names["forward/16/16384"])
		}
	}
}

func TestOurs(t *testing.T) {
	var o ours
	l := contestantOf("x", farfield, "fastmax", 32, 8, withOrder(2), withForm("linear")).line
	for range 2 { // opens, then reuses
		got, err := o.measure(t.Context(), l, time.Nanosecond)
		if err != nil || !(got.Ms > 0) || got.Form != "linear" || got.Threads != 1 || got.Heads != 8 || got.Rounds != 1 {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if len(o.sessions) != 1 {
		t.Errorf("%d sessions are open", len(o.sessions))
	}
	o.forget()
	for _, bad := range []func(*bench.Line){withForm("round"), func(l *bench.Line) { l.Mechanism = "hope" }} {
		if _, err := o.measure(t.Context(), contestantOf("x", farfield, "softmax", 32, 8, bad).line, 1); err == nil {
			t.Error("no error for what there is not")
		}
	}
}

func TestPeerHasItsBestSettings(t *testing.T) {
	p, err := startAll(t.Context(), peerOf("3", "none", "2", "1.99"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if len(p.processes) != 3 {
		t.Fatalf("%d processes", len(p.processes))
	}
	l := contestantOf("x", "peer", "softmax", 1024, 64).line
	if err := p.choose(t.Context(), []bench.Line{l}, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if got, want := p.settings(), []string{"peer 1.0 with ms=2 libs: softmax forward"}; !slices.Equal(got, want) {
		t.Errorf("settings are %q, want %q", got, want)
	}
	if got, err := p.measure(l, time.Millisecond); err != nil || got.Ms != 2 || got.N != 1024 {
		t.Errorf("%+v, %v", got, err)
	}
	l.D = 13
	if _, err := p.measure(l, time.Millisecond); err == nil || err.Error() != "unlucky" {
		t.Errorf("error %v", err)
	}
}

func TestPeerThatIsNotThere(t *testing.T) {
	_, err := startAll(t.Context(), peerOf("none"))
	if err == nil || err.Error() != "no module named torch" {
		t.Errorf("error %v", err)
	}
	if _, err := startAll(t.Context(), []command{{args: []string{"a program that is not there"}}}); err == nil {
		t.Error("no error")
	}
}

func TestTrial(t *testing.T) {
	var list []bench.Line
	for _, d := range []int{16, 32} {
		for _, n := range []int{64, 2048, 16384} {
			list = append(list, contestantOf("x", torch, "softmax", n, d).line)
		}
	}
	if l := tryCase(list); l.N != 2048 || l.D != 32 {
		t.Errorf("tried with N = %d, D = %d", l.N, l.D)
	}
	if l := tryCase([]bench.Line{contestantOf("x", torch, "softmax", 1024, 32, withDirection("update")).line}); l.N != 256 || l.M != 256 {
		t.Errorf("training is tried with %d tokens", l.N)
	}
}

func TestTakeTurns(t *testing.T) {
	var calls []string
	by := map[string]measurer{
		farfield: func(l bench.Line, _ time.Duration) (bench.Line, error) {
			calls = append(calls, fmt.Sprint("ours", l.D))
			l.Ms, l.Peak = 1, 100*float64(min(l.Threads, 1))
			return l, nil
		},
		torch: func(l bench.Line, _ time.Duration) (bench.Line, error) {
			calls = append(calls, fmt.Sprint("torch", l.D))
			if l.D == 13 {
				return l, errors.New("unlucky")
			}
			l.Ms, l.GFLOPS = 2, 25
			return l, nil
		},
	}
	c := cell{"s", []string{"a"}, []contestant{
		contestantOf("a", farfield, "softmax", 1, 1), contestantOf("b", torch, "softmax", 1, 2), contestantOf("c", onnxruntime, "softmax", 1, 3), contestantOf("d", torch, "softmax", 1, 13),
	}}
	var told []string
	records, err := takeTurns(t.Context(), c, by, pace{rounds: 4}, func(s string) { told = append(told, s) })
	if err != nil {
		t.Fatal(err)
	}
	if want := "ours1 torch2 torch13 ours1 torch2 ours1 torch2"; strings.Join(calls, " ") != want {
		t.Errorf("turns: %v, want %s", calls, want) // three rounds: the cell's time is over
	}
	if want := []string{"s/a: without d: unlucky"}; !slices.Equal(told, want) {
		t.Errorf("told %q", told)
	}
	if last := records[len(records)-1]; len(records) != 6 || last.Cell != "s/a" || last.Contestant != "b" || last.Round != 2 || last.Peak != 100 || last.Share != 0.25 {
		t.Errorf("%d records, the last %+v", len(records), last)
	}
}

// recorded is a run of one section.
func recorded() ([]section, *run) {
	s := section{
		name: "s", title: "Title", note: "Note.", keys: []string{"D"},
		columns: []column{figureColumn("form", "a", form), figureColumn("ms", "a", milliseconds), figureColumn("of peak", "a", share), figureColumn("steps/s", "a", perSecond), ratioColumn("b / a", "b", "a"), ratioColumn("c / a", "c", "a"), {title: "most", contestant: "b", baseline: "a", highIsWorst: true}},
	}
	r := &run{Machine: "Machine", Date: "2001-02-03", Settings: []string{"b with x=1"}}
	for _, d := range []string{"1", "2"} {
		c := cell{"s", []string{d}, nil}
		s.cells = append(s.cells, c)
		// The middle of the ratios, 2, 4 and 3, is not the ratio of the middles.
		for i, ms := range [][2]float64{{1, 2}, {10, 40}, {2, 6}} {
			add := func(name string, ms float64) {
				if d == "2" {
					ms *= ms
				}
				r.records = append(r.records, record{c.name(), name, i, bench.Line{Form: "direct", Ms: ms, Share: 0.456}})
			}
			add("a", ms[0])
			if i != 1 || d == "1" {
				add("b", ms[1])
			}
		}
	}
	return []section{s}, r
}

const table = `
### Title

Note.

| D | form | ms | of peak | steps/s | b / a | c / a | most |
|---|---|---|---|---|---|---|---|
| 1 | direct | 2.00 | 46 % | 500 | 3.00 | – | 3.00 |
| 2 | direct | 4.00 | 46 % | 250 | 6.50 | – | 6.50 |
| worst |  |  |  |  | **3.00** |  | **6.50** |
`

func TestMarkdown(t *testing.T) {
	sections, r := recorded()
	text := string(r.markdown(sections))
	if !strings.HasSuffix(text, table) {
		t.Errorf("tables are\n%s\nwant\n%s", text, table)
	}
	for _, want := range []string{"Machine; 2001-02-03.", "\n- b with x=1\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	sections = append(sections, section{name: "none", title: "Not measured", cells: []cell{{"none", []string{"1"}, nil}}})
	if again := string(r.markdown(sections)); again != text {
		t.Errorf("a section that was not measured shows:\n%s", again)
	}
}

// encoded is the file of a run.
func encoded(t *testing.T, r *run) *bytes.Buffer {
	t.Helper()
	b := new(bytes.Buffer)
	lines := json.NewEncoder(b)
	if err := errors.Join(lines.Encode(r), new(run).add(r.records, lines)); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRunIsReadAsWritten(t *testing.T) {
	sections, r := recorded()
	b := encoded(t, r)
	if lines := strings.Count(b.String(), "\n"); lines != 1+len(r.records) {
		t.Errorf("%d lines", lines)
	}
	got, err := readLines(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.records, r.records) || !bytes.Equal(got.markdown(sections), r.markdown(sections)) {
		t.Errorf("read %+v", got)
	}
	if _, err := readLines(strings.NewReader(b.String() + "{")); err == nil {
		t.Error("no error for half a line")
	}
}

func TestDigits(t *testing.T) {
	for _, c := range []struct {
		x           float64
		plain, over string
	}{
		{0.01234, "0.0123", "0.01"}, {0.5, "0.500", "0.50"}, {9.876, "9.88", "9.88"}, {12.34, "12.3", "12.3"}, {123.4, "123", "123"}, {12345, "12345", "12345"},
	} {
		if formatDigits(c.x) != c.plain || ratioText(c.x) != c.over {
			t.Errorf("%g is written %s and %s", c.x, formatDigits(c.x), ratioText(c.x))
		}
	}
	if (column{contestant: "x", show: milliseconds}).text(rows{}) != absent || !math.IsNaN((rows{}).ratio("a", "b")) {
		t.Error("what was not measured has a value")
	}
}

func TestChoose(t *testing.T) {
	cells := chooseCells(allSections(false), regexp.MustCompile(`^forward/64/(64|1024)$`))
	if len(cells) != 2 || len(linesOf(cells, onnxruntime)) != 4 || len(linesOf(cells, torch)) != 2 {
		t.Errorf("%d cells", len(cells))
	}
}

func TestVerbs(t *testing.T) {
	_, r := recorded()
	dir := t.TempDir()
	lines, page := filepath.Join(dir, "lines"), filepath.Join(dir, "page.md")
	b := encoded(t, r)
	for path, text := range map[string][]byte{lines: b.Bytes(), page: []byte("# Page\n")} {
		if err := os.WriteFile(path, text, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := Run(t.Context(), []string{"table", "-page", page, lines}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(text), written.Begin+"\nMachine; 2001-02-03.") {
		t.Errorf("page is\n%s, %v", text, err)
	}
	for _, bad := range []string{"", "walk", "run -run (", "run -run nothing", "run more", "table", "table " + page, "table " + dir + "/none"} {
		if err := Run(t.Context(), strings.Fields(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
