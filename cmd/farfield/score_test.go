package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/farfield-ml/farfield/internal/checkpoint"
	"github.com/farfield-ml/farfield/internal/cli/score"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

// scorerOf saves a small model of that mechanism.
func scorerOf(t *testing.T, mechanism string) string {
	t.Helper()
	m, err := model.New(model.Config{
		Kind: model.Decoder, Vocab: 256, Layers: 1, Heads: 2, Width: 16, Context: 64,
		Positions: model.Rotary, Mechanism: mechanism, Tied: true,
	}, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range m.Params().All() {
		for j := range p.Data {
			p.Data[j] += float32(0.2 * rng.New(2).Fold(uint64(i)).Normal(uint64(j)))
		}
	}
	dir := filepath.Join(t.TempDir(), "model")
	if err := checkpoint.SaveModel(dir, m, token.NewByteVocabulary()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func scored(t *testing.T, text string) (r score.Report) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return r
}

var byByte = &score.Command{Rank: "byte"}

func TestScore(t *testing.T) {
	t.Parallel()
	dir := scorerOf(t, "fastmax")
	path := filepath.Join(t.TempDir(), "log")
	lines := []string{"one\n", "two\n", "\n", "three and more\n", "no end"}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o666); err != nil {
		t.Fatal(err)
	}
	whole := scored(t, works(t, "score", "--model", dir, "--json", "--top", "2", path))
	if whole.Lines != 5 || whole.Bytes != 30 || len(whole.Top) != 2 || byByte.RankLine(whole.Top[0].LineScore) < byByte.RankLine(whole.Top[1].LineScore) {
		t.Errorf("%+v", whole)
	}
	all := scored(t, works(t, "score", "--model", dir, "--json", "--top", "9", path))
	var bits float64
	for _, l := range all.Top {
		bits += l.Bits
	}
	if len(all.Top) != 5 || bits-whole.Bits > 1e-9*bits || whole.Bits-bits > 1e-9*bits {
		t.Errorf("lines take %v bits, the text %v", bits, whole.Bits)
	}
	text := works(t, "score", "--model", dir, "--lines", "--above", fmt.Sprint(byByte.RankLine(all.Top[1].LineScore)), path)
	if n := strings.Count(text, "\n"); n != 1+1+1+5 || !strings.Contains(text, all.Top[0].Text) {
		t.Errorf("one line is above: %s", text)
	}
	refuses(t, "--above: needs --lines", "score", "--model", dir, "--above", "3", path)
	refuses(t, "--json: given beside --jsonl", "score", "--model", dir, "--json", "--jsonl", path)
	if out := works(t, "score", "--model", dir, "--json", "--top", "0", path); !strings.Contains(out, `"most_surprising": []`) {
		t.Error(out)
	}
}

// syncBuffer may be read while a command writes it.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// The report says how a text beyond the trained context was read.
func TestScoreSaysHowItReadsBeyondTheContext(t *testing.T) {
	t.Parallel()
	dir, path := scorerOf(t, "fastmax"), filepath.Join(t.TempDir(), "log")
	for _, x := range []struct {
		text, note string
		args       []string
		window     int
	}{
		{strings.Repeat("short\n", 10), "", nil, 0},
		{strings.Repeat("long\n", 20), "read in windows of 64 tokens, the trained context of the model\n", nil, 64},
		{strings.Repeat("long\n", 20), "the text has 100 tokens, the model was trained with 64", []string{"--beyond-context"}, 0},
	} {
		wrote(t, path, x.text)
		status, out, notes := command(t, append([]string{"score", "--model", dir, "--json", path}, x.args...)...)
		if r := scored(t, out); status != 0 || r.ContextWindow != x.window || !strings.Contains(notes, x.note) || x.note == "" && notes != "" {
			t.Errorf("%v: status %d, windows of %d, %q; want %d, %q", x.args, status, r.ContextWindow, notes, x.window, x.note)
		}
	}
	wrote(t, path, fmt.Sprintf("{\"text\":\"short\"}\n{\"text\":%q}\n", strings.Repeat("long ", 20)))
	if status, _, notes := command(t, "score", "--model", dir, "--jsonl", path); status != 0 || !strings.Contains(notes, "1 record longer than the trained context of 64 tokens: read in windows of it\n") {
		t.Errorf("status %d, %q", status, notes)
	}
}

// Other verbs say so, too, and vectors of long texts are means of windows.
func TestVerbsSayWhatIsBeyondTheTrainedContext(t *testing.T) {
	t.Parallel()
	dir, learned, path := scorerOf(t, "fastmax"), learnedModel(t), filepath.Join(t.TempDir(), "text")
	long := strings.Repeat("a", 64) + strings.Repeat("b", 32)
	wrote(t, path, long+"\n")
	for _, x := range []struct {
		note string
		args []string
	}{
		{"the text will have 96 tokens: it is continued in windows of 64, the trained context of the model\n", []string{"generate", "--model", dir, "--prompt", long, "--tokens", "0"}},
		{"the text will have 74 tokens: it is continued in windows of 64", []string{"generate", "--model", dir, "--prompt", "abcd", "--tokens", "70"}},
		{"the text will have 74 tokens: the model was trained with 64\n", []string{"generate", "--model", dir, "--prompt", "abcd", "--tokens", "70", "--beyond-context"}},
		{"", []string{"generate", "--model", dir, "--prompt", "abcd", "--tokens", "60"}},
		{"1 text longer than the trained context of 64 tokens: vectors are means of windows of it\n", []string{"embed", "--model", dir, path}},
		{": the text has 96 tokens, the model was trained with 64: maps may not show what it learned\n", []string{"maps", "--model", dir, "--text", long, "--out", filepath.Join(t.TempDir(), "maps.html")}},
	} {
		status, _, notes := command(t, x.args...)
		if status != 0 || !strings.Contains(notes, x.note) || x.note == "" && notes != "" {
			t.Errorf("%v: status %d, %q, want %q", x.args, status, notes, x.note)
		}
	}
	refuses(t, "the text would have 74 tokens, the model learned 64 positions", "generate", "--model", learned, "--prompt", "abcd", "--tokens", "70")
	refuses(t, "--beyond-context: window: is 0 tokens, the model learned 64 positions", "score", "--model", learned, "--beyond-context", path)
	vector := func(text string) []float32 {
		t.Helper()
		wrote(t, path, text+"\n")
		var x struct{ Vector []float32 }
		if err := json.Unmarshal([]byte(works(t, "embed", "--model", dir, path)), &x); err != nil {
			t.Fatal(err)
		}
		return x.Vector
	}
	whole, first, second := vector(long), vector(long[:64]), vector(long[64:])
	for i, x := range whole {
		if want := (2*first[i] + second[i]) / 3; math.Abs(float64(x-want)) > 1e-5 {
			t.Fatalf("element %d of the vector is %v, the mean of windows %v", i, x, want)
		}
	}
}

// learnedModel saves a small model with 64 learned positions.
func learnedModel(t *testing.T) string {
	t.Helper()
	m, err := model.New(model.Config{
		Kind: model.Decoder, Vocab: 256, Layers: 1, Heads: 2, Width: 16, Context: 64, Positions: model.Learned, Mechanism: "fastmax", Tied: true,
	}, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "model")
	if err := checkpoint.SaveModel(dir, m, token.NewByteVocabulary()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A line of no bits is a line.
func TestScorePrintsLinesOfNoBits(t *testing.T) {
	t.Parallel()
	m, err := model.New(model.Config{
		Kind: model.Decoder, Vocab: 1, Layers: 1, Heads: 1, Width: 8, Context: 8, Positions: model.Rotary, Mechanism: "softmax", Tied: true,
	}, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	vocab, err := token.NewCharVocabulary([]byte("\n"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "model")
	if err := checkpoint.SaveModel(dir, m, vocab); err != nil {
		t.Fatal(err)
	}
	args := []string{"score", "--model", dir, "--lines", "--json", "--top", "0", textsOf(t, "\n\n\n")}
	if out := works(t, args...); strings.Count(out, "\n") != 4 {
		t.Errorf("of three lines are printed\n%s", out)
	}
	if out := works(t, append(args, "--above", "0")...); strings.Count(out, "\n") != 1 {
		t.Errorf("of three lines are above 0 bits\n%s", out)
	}
}

// Records are scored each for itself, with any parts of them left to others. An empty
// line is no record.
func TestFilters(t *testing.T) {
	t.Parallel()
	dir := scorerOf(t, "fastmax")
	path := filepath.Join(t.TempDir(), "in.jsonl")
	var b strings.Builder
	for i := range 7 {
		fmt.Fprintf(&b, "{\"id\": %d, \"text\": \"record %s\"}\n", i, strings.Repeat("x", i))
		if i == 2 {
			b.WriteString("\r\n")
		}
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"score", "embed"} {
		args := []string{verb, "--model", dir, "--jsonl"}
		all := strings.SplitAfter(works(t, append(args, path)...), "\n")
		all = all[:len(all)-1]
		if len(all) != 7 {
			t.Fatalf("%s: %d records", verb, len(all))
		}
		for i, line := range all {
			var x struct {
				ID     int
				Text   string
				Bits   float64
				Bytes  int
				Vector []float32
			}
			if err := json.Unmarshal([]byte(line), &x); err != nil || x.ID != i {
				t.Fatalf("%s: %v: %s", verb, err, line)
			}
			if verb == "score" && (x.Bytes != len(x.Text) || !(x.Bits > 0)) || verb == "embed" && len(x.Vector) != 16 {
				t.Errorf("%s: %s", verb, line)
			}
		}
		if got := works(t, append(args, "--skip", "4", path)...); got != strings.Join(all[4:], "") {
			t.Errorf("%s --skip 4: %s", verb, got)
		}
		if got := works(t, append(args, "--shard", "1/3", "--skip", "1", path)...); got != all[4] {
			t.Errorf("%s --shard 1/3 --skip 1: %s", verb, got)
		}
	}
}

// A text scores the same as gzip and after a byte order mark.
func TestScoreReadsGzipAndByteOrderMarks(t *testing.T) {
	t.Parallel()
	dir, path := scorerOf(t, "fastmax"), filepath.Join(t.TempDir(), "log")
	const text = "one\ntwo words\n"
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	fmt.Fprint(z, text)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	wrote(t, path, text)
	want := works(t, "score", "--model", dir, "--json", path)
	for _, content := range []string{zipped.String(), "\ufeff" + text} {
		wrote(t, path, content)
		if got := works(t, "score", "--model", dir, "--json", path); got != want {
			t.Errorf("%.3q: %s, want %s", content, got, want)
		}
	}
}

func TestScoreRefusals(t *testing.T) {
	t.Parallel()
	dir := scorerOf(t, "fastmax")
	path := filepath.Join(t.TempDir(), "in")
	for _, x := range []struct {
		want, in string
		args     []string
	}{
		{"--jsonl: not with --lines", "", []string{"score", "--model", dir, "--jsonl", "--lines", path}},
		{"--rank, --top: not with --jsonl", "", []string{"score", "--model", dir, "--jsonl", "--rank", "total", path}},
		{"--rank, --top: not with --jsonl", "", []string{"score", "--model", dir, "--jsonl", "--top", "3", path}},
		{"--field, --skip, --shard, --out: need --jsonl", "", []string{"score", "--model", dir, "--skip", "3", path}},
		{"--shard: \"3/3\" is not I/N", "", []string{"score", "--model", dir, "--jsonl", "--shard", "3/3", path}},
		{"record 1: is not a JSON object", "[1]\n", []string{"score", "--model", dir, "--jsonl", path}},
		{"line 1: has no field \"text\"", "{\"a\":1}\n", []string{"score", "--model", dir, "--jsonl", path}},
		{"line 2: has no field \"text\"", "\n{\"a\":1}\n", []string{"score", "--model", dir, "--jsonl", path}},
		{"line 1: text: has half a surrogate pair: \"a\\ud83d\"", "{\"text\":\"a\\ud83d\"}\n", []string{"score", "--model", dir, "--jsonl", path}},
		{"line 1: text: is not a string", "{\"text\":1}\n", []string{"score", "--model", dir, "--jsonl", path}},
		{"line 1: bits: is there already", "{\"text\":\"a\",\"bits\":1}\n", []string{"score", "--model", dir, "--jsonl", path}},
		{"--field: texts have no fields", "", []string{"embed", "--model", dir, "--no-jsonl", "--field", "a", path}},
		{"--field, --skip, --shard, --out: need --jsonl", "", []string{"score", "--model", dir, "--out", path + ".out", path}},
		{"is what is read", "", []string{"score", "--model", dir, "--jsonl", "--out", path, path}},
		{"--top: -1 is negative", "", []string{"score", "--model", dir, "--top=-1", path}},
	} {
		if err := os.WriteFile(path, []byte(x.in), 0o666); err != nil {
			t.Fatal(err)
		}
		refuses(t, x.want, x.args...)
	}
	wrote(t, path, "[1]\n")
	refuses(t, "record 1: is not a JSON object", "score", "--model", dir, "--jsonl", "--out", path+".out", path)
	for _, name := range []string{path + ".out", path + ".out.origin"} {
		if _, err := os.Stat(name); err == nil {
			t.Errorf("%s was made", name)
		}
	}
}
