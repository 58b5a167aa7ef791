package main

import (
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/cli/eval"
	"github.com/farfield-ml/farfield/internal/cli/score"
	"github.com/farfield-ml/farfield/internal/published"
	"github.com/farfield-ml/farfield/internal/safetensors"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tokenizer"
)

// tinyModel is a BERT of random weights in the Hugging Face layout.
const tinyModel = "../../pretrained/testdata/tiny"

// writeIDs writes a file with the array input_ids [1,4].
func writeIDs(t *testing.T) string {
	t.Helper()
	return written(t, "in.npz", integers(t, "input_ids", 2, 5, 6, 3))
}

// integers returns an array [1,N].
func integers(t *testing.T, name string, list ...int64) *array.Array {
	t.Helper()
	a, err := array.New(name, list, 1, len(list))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A verb reads the arrays that it knows and refuses the rest by name, so that a misspelt mask does
// not pass for none.
func TestVerbsRefuseArraysThatTheyDoNotRead(t *testing.T) {
	t.Parallel()
	ids, run, out := integers(t, "input_ids", 2, 5, 6, 3), trained(t), filepath.Join(t.TempDir(), "out.npz")
	q, err := array.New("q", make([]float32, 8), 4, 2)
	if err != nil {
		t.Fatal(err)
	}
	k, v := *q, *q
	k.Name, v.Name = "k", "v"
	vectors, err := array.New("vectors", make([]float32, 8), 4, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want string
		file string
		args []string // before the file
		list []*array.Array
	}{
		{"attention_maks: no array of this name is read; there are: input_ids, attention_mask", "a.npz", []string{"forward", "--model", tinyModel}, []*array.Array{ids, integers(t, "attention_maks", 1, 1, 1, 0)}},
		{"position_ids: element [0,1] is 2; the model counts its positions itself, 1 here", "a.npz", []string{"forward", "--model", tinyModel}, []*array.Array{ids, integers(t, "position_ids", 0, 2, 3, 4)}},
		{"position_ids: has the shape [1 3], input_ids [1 4]", "a.npz", []string{"forward", "--model", tinyModel}, []*array.Array{ids, integers(t, "position_ids", 0, 2, 3)}},
		{"attention_mask: element [0,3] is 2, 0 or 1 is needed", "a.npz", []string{"forward", "--model", tinyModel}, []*array.Array{ids, integers(t, "attention_mask", 1, 1, 1, 2)}},
		{"attention_maks: no array", "a.npz", []string{"generate", "--model", run, "--ids"}, []*array.Array{ids, integers(t, "attention_maks", 1, 1, 1, 0)}},
		{"position_ids: element [0,0] is 1", "a.npz", []string{"generate", "--model", run, "--ids"}, []*array.Array{ids, integers(t, "position_ids", 1, 2, 3, 4)}},
		{"token_type_ids: element 1 is 1; a model that generates has the type 0 alone", "a.npz", []string{"generate", "--model", run, "--ids"}, []*array.Array{ids, integers(t, "token_type_ids", 0, 1, 0, 0)}},
		{"attention_mask: masks all 4 tokens", "a.npz", []string{"generate", "--model", run, "--ids"}, []*array.Array{ids, integers(t, "attention_mask", 0, 0, 0, 0)}},
		{"key_padding_mask: no array", "a.npz", []string{"maps", "--mechanism", "softmax"}, []*array.Array{q, &k, integers(t, "key_padding_mask", 1, 1, 1, 0)}},
		{"labels: no array of this name is read; a file of vectors has one array, vectors", "a.safetensors", []string{"search", "--queries", "none"}, []*array.Array{vectors, integers(t, "labels", 1)}},
	} {
		args := append(c.args, written(t, c.file, c.list...))
		if verb := c.args[0]; verb == "forward" {
			args = append(args, out)
		}
		refuses(t, c.want, args...)
	}
	want := works(t, "forward", "--model", tinyModel, written(t, "a.npz", ids), out)
	if got := works(t, "forward", "--model", tinyModel, written(t, "a.npz", ids, integers(t, "position_ids", 0, 1, 2, 3)), out); got != want {
		t.Errorf("with the positions of the model %s, without %s", got, want)
	}
}

// Padding has no effect on a text, on whatever side it is.
func TestGenerateLeavesOutMaskedTokens(t *testing.T) {
	t.Parallel()
	run := trained(t)
	generate := func(list ...*array.Array) string {
		return works(t, "generate", "--model", run, "--tokens", "6", "--temperature", "0", "--ids", written(t, "a.npz", list...))
	}
	want := generate(integers(t, "input_ids", 40, 5, 6))
	for _, c := range [][3][]int64{
		{{9, 9, 40, 5, 6}, {0, 0, 1, 1, 1}, {1, 1, 0, 1, 2}},
		{{40, 5, 6, 9}, {1, 1, 1, 0}, {0, 1, 2, 7}},
		{{40, 9, 5, 6}, {1, 0, 1, 1}, {0, 0, 1, 2}},
	} {
		got := generate(integers(t, "input_ids", c[0]...), integers(t, "attention_mask", c[1]...), integers(t, "position_ids", c[2]...))
		if got != want {
			t.Errorf("tokens %v with the mask %v give %s, without padding %s", c[0], c[1], got, want)
		}
	}
}

func TestForwardWritesTheNamesOfTransformers(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out.npz")
	works(t, "forward", "--model", tinyModel, writeIDs(t), out)
	z, err := array.OpenNPZ(out)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for _, name := range []string{"hidden", "last_hidden_state"} {
		if !slices.Contains(z.Names(), name) {
			t.Errorf("%v lack %s", z.Names(), name)
		}
	}
}

func TestExportedFolderHasTheOutputsAndTheBytesOfTheModel(t *testing.T) {
	t.Parallel()
	in, dir := writeIDs(t), filepath.Join(t.TempDir(), "copy")
	works(t, "export", "--model", tinyModel, "--out", dir)
	before, after := filepath.Join(t.TempDir(), "a.npz"), filepath.Join(t.TempDir(), "b.npz")
	works(t, "forward", "--model", tinyModel, in, before)
	works(t, "forward", "--model", dir, in, after)
	for _, pair := range [][2]string{{before, after}, {filepath.Join(tinyModel, "model.safetensors"), filepath.Join(dir, "model.safetensors")}} {
		a, err := os.ReadFile(pair[0])
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(pair[1])
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(a, b) {
			t.Errorf("%s and %s differ", pair[0], pair[1])
		}
	}
	if status, _, errs := command(t, "export", "--model", tinyModel, "--out", dir); status != 2 || !strings.Contains(errs, "--out") {
		t.Errorf("a folder with files: status %d: %s", status, errs)
	}
	refuses(t, "--out: is empty", "export", "--model", tinyModel, "--out", "")
	refuses(t, "--out: ", "export", "--model", tinyModel, "--out", before)
	refuses(t, "--out: ", "export", "--model", tinyModel, "--out", filepath.Join(before, "below"))
}

func TestEmbedReadsAPublishedFolder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lines.txt")
	if err := os.WriteFile(path, []byte("one text\nanother text\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	out := works(t, "embed", "--model", tinyModel, path)
	if n := strings.Count(out, `"vector":[`); n != 2 {
		t.Errorf("%d vectors of 2 texts: %s", n, out)
	}
	if out := works(t, "embed", "--model", tinyModel, textsOf(t, "\n \n")); strings.Count(out, `{"text":"","vector":null}`) != 1 || strings.Count(out, `"vector":[`) != 1 {
		t.Errorf("an empty text and one with special tokens: %s", out)
	}
}

// writeClassifier writes tinyModel with a head of three classes, and returns its folder.
func writeClassifier(t *testing.T, architecture string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(tinyModel)); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	var list []*array.Array
	for _, name := range f.Names() {
		a, err := f.ReadArray(name)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, a)
	}
	f.Close()
	for i, shape := range [][]int{{3, 8}, {3}} {
		a := normal(t, []string{"classifier.weight", "classifier.bias"}[i], uint64(5+i), shape...)
		list = append(list, a)
	}
	path := filepath.Join(dir, "model.safetensors")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := safetensors.Write(out, list, nil); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(config), `"BertModel"]`, `"`+architecture+`"],"id2label":{"0":"bad","1":"good","2":"fair"}`, 1)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPredictReadsPublishedFolders(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lines.txt")
	if err := os.WriteFile(path, []byte("the cat sat\n\nthe dog ran\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	dir := writeClassifier(t, "BertForSequenceClassification")
	out := works(t, "predict", "--model", dir, path)
	lines := strings.Split(out, "\n")
	if len(lines) != 4 || lines[1] != "\t\t" || !strings.HasSuffix(lines[0], "\tthe cat sat") {
		t.Errorf("%q", out)
	}
	if label, _, _ := strings.Cut(lines[0], "\t"); !slices.Contains([]string{"bad", "good", "fair"}, label) {
		t.Errorf("label %q is no name of id2label", label)
	}
	if out = works(t, "predict", "--model", dir, "--json", path); !strings.Contains(out, `"probabilities":{"bad":`) {
		t.Error(out)
	}
	out = works(t, "predict", "--model", writeClassifier(t, "BertForTokenClassification"), "--json", path)
	if !strings.Contains(out, `"offsets":[[0,3],[4,7],[8,11]]`) || strings.Count(out, `"labels":[`) != 2 {
		t.Error(out)
	}
	refuses(t, "the bert has no head of classes", "predict", "--model", tinyModel, path)
}

// TestEvalOfAPublishedClassifierIsTheScoreOfItsPredictions compares accuracy, loss and
// confusion with the probabilities of predict.
func TestEvalOfAPublishedClassifierIsTheScoreOfItsPredictions(t *testing.T) {
	t.Parallel()
	dir, folder := writeClassifier(t, "BertForSequenceClassification"), t.TempDir()
	texts, data := filepath.Join(folder, "lines.txt"), filepath.Join(folder, "labelled.tsv")
	words := []string{"the", "cat", "sat", "dog", "ran", "on", "mat"}
	labels := []string{"bad", "GOOD", "fair", "GOOD"}
	var lines, table strings.Builder
	table.WriteString("text\tlabel\n")
	const n = 60
	for i := range n {
		text := words[i%7] + " " + words[i*i%5] + strings.Repeat(" "+words[i%3], i%4*6)
		fmt.Fprintln(&lines, text)
		fmt.Fprintf(&table, "%s\t%s\n", text, labels[i%4])
	}
	cut := filepath.Join(dir, "tokenizer_config.json") // of texts with more than 16 tokens
	for path, text := range map[string]string{texts: lines.String(), data: table.String(), cut: `{"truncation_side":"left"}`} {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	right, loss := 0, 0.
	names := []string{"bad", "good", "fair", "good"}
	for i, line := range strings.Split(strings.TrimSpace(works(t, "predict", "--model", dir, "--json", texts)), "\n") {
		var p struct {
			Label         string
			Probabilities map[string]float64
		}
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatal(err)
		}
		if p.Label == names[i%4] {
			right++
		}
		loss -= math.Log(p.Probabilities[names[i%4]]) / n
	}
	var got eval.Report
	out := works(t, "eval", "--model", dir, "--task", "file", "--data", data, "--all", "--json")
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	// Probabilities are rounded to six decimals.
	if got.Samples != n || math.Abs(got.Value-float64(right)/n) > 1e-9 || math.Abs(got.Loss-loss) > 1e-5 {
		t.Errorf("%s\npredict: %d right of %d, loss %v", out, right, n, loss)
	}
	if len(got.Confusion) != 3 || !slices.Equal(got.Classes, []string{"bad", "good", "fair"}) || len(got.Baselines) != 1 || got.Baselines[0].Score != 0.5 {
		t.Error(out)
	}
	out = works(t, "eval", "--model", dir, "--data", data)
	if !strings.HasPrefix(out, "verdict ") || strings.Count(out, "\nbaseline ") != 3 || !strings.Contains(out, "\ntest        accuracy 0.") {
		t.Error(out)
	}
	if err := os.WriteFile(data, []byte("text\tlabel\nthe cat\tgood\na dog\tworse\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	refuses(t, `label: "worse" is no class of the model`, "eval", "--model", dir, "--data", data)
	if err := os.WriteFile(data, []byte("text\tlabel\nthe cat\tgood\na dog\t1\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	refuses(t, "all labels are names, or all are numbers", "eval", "--model", dir, "--data", data)
	refuses(t, "its classes are of tokens", "eval", "--model", writeClassifier(t, "BertForTokenClassification"), "--data", data)
	refuses(t, "has no data of its own", "eval", "--model", dir)
	refuses(t, "and has no classes", "eval", "--model", tinyModel, "--data", data)
}

// TestEvalOfAPublishedDecoderIsItsReferenceLoss compares bits per byte with score, and nats
// of a token with a reference in float64.
func TestEvalOfAPublishedDecoderIsItsReferenceLoss(t *testing.T) {
	t.Parallel()
	const dir = "../../../shared/models/stories260K"
	data, err := os.ReadFile(filepath.Join(dir, "texts.json"))
	if err != nil {
		t.Skipf("the trained model is not there: %v", err)
	}
	var texts []string
	if err := json.Unmarshal(data, &texts); err != nil {
		t.Fatal(err)
	}
	ref, err := array.OpenNPZ(filepath.Join(dir, "ref_f64.npz"))
	if err != nil {
		t.Fatal(err)
	}
	defer ref.Close()
	compared := 0
	for i, text := range texts {
		a, err := ref.ReadArray(fmt.Sprintf("text%d_nll", i))
		if err != nil {
			t.Fatal(err)
		}
		want, err := a.Float64()
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "text.txt")
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		var got eval.Report
		out := works(t, "eval", "--model", filepath.Join(dir, "hf"), "--data", path, "--all", "--json")
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		if got.Samples > 1 {
			continue // the reference cuts this text
		}
		var scored score.Report
		if err := json.Unmarshal([]byte(works(t, "score", "--model", filepath.Join(dir, "hf"), "--json", path)), &scored); err != nil {
			t.Fatal(err)
		}
		if math.Abs(got.Loss-want[0]) > 1e-4*want[0] || got.Bytes != int64(len(text)) || math.Abs(got.Bits-scored.BitsPerByte) > 1e-6*got.Bits {
			t.Errorf("text %d: %s\nreference %v nats, score %v bits per byte", i, out, want[0], scored.BitsPerByte)
		}
		compared++
	}
	t.Logf("compared %d texts", compared)
}

func TestPredictReadsPairs(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pairs.tsv")
	if err := os.WriteFile(path, []byte("the cat\ta dog ran\n\nsun\train\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	dir := writeClassifier(t, "BertForSequenceClassification")
	out := works(t, "predict", "--model", dir, "--pairs", "--json", path)
	if lines := strings.Split(out, "\n"); len(lines) != 4 || !strings.HasPrefix(lines[0], `{"text":"the cat","pair":"a dog ran","label":`) || lines[1] != `{"text":""}` {
		t.Error(out)
	}
	refuses(t, "no tab", "predict", "--model", dir, "--pairs", writeText(t, "one text\n"))
	one := lineFields(t, strings.Split(out, "\n")[0])
	out = works(t, "predict", "--model", dir, "--pairs", "--jsonl", writeText(t, `{"pair":"a dog ran","id":7,"text":"the cat"}`+"\n"))
	if got := lineFields(t, out); got["id"] != 7. || got["label"] != one["label"] || got["probability"] != one["probability"] {
		t.Errorf("%v, want %v", got, one)
	}
	refuses(t, `line 1: has no field "pair"`, "predict", "--model", dir, "--pairs", "--jsonl", writeText(t, `{"text":"the cat"}`))
	refuses(t, `line 1: pair: is not a string: 3`, "predict", "--model", dir, "--pairs", "--jsonl", writeText(t, `{"text":"the cat","pair":3}`))
	refuses(t, "not pairs", "predict", "--model", writeClassifier(t, "BertForTokenClassification"), "--pairs", path)
}

// lineFields returns the fields of a JSON line.
func lineFields(t *testing.T, line string) map[string]any {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal([]byte(line), &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

// TestEvalOfPairsIsTheScoreOfTheirPredictions compares accuracy and loss with predict, of
// tables and of JSON lines, of pairs that fit and of pairs that are cut.
func TestEvalOfPairsIsTheScoreOfTheirPredictions(t *testing.T) {
	t.Parallel()
	dir := writeClassifier(t, "BertForSequenceClassification")
	words := []string{"the", "cat", "sat", "dog", "ran", "on", "mat"}
	names := []string{"bad", "good", "fair"}
	var lines, records, table strings.Builder
	table.WriteString("hypothesis,premise,label\n")
	const n = 40
	for i := range n {
		text, pair := words[i%7]+strings.Repeat(" "+words[i%3], i%13), words[i*i%5]+strings.Repeat(" "+words[i%4], i%9)
		fmt.Fprintf(&lines, "%s\t%s\n", text, pair)
		fmt.Fprintf(&records, `{"label":%d,"text":%q,"pair":%q}`+"\n", i%3, text, pair)
		fmt.Fprintf(&table, "%s,%s,%s\n", pair, text, names[i%3])
	}
	right, loss := 0, 0.
	for i, line := range strings.Split(strings.TrimSpace(works(t, "predict", "--model", dir, "--pairs", "--json", writeText(t, lines.String()))), "\n") {
		p := lineFields(t, line)
		if p["label"] == names[i%3] {
			right++
		}
		loss -= math.Log(p["probabilities"].(map[string]any)[names[i%3]].(float64)) / n
	}
	folder := t.TempDir()
	for name, text := range map[string]string{"pairs.jsonl": records.String(), "pairs.csv": table.String()} {
		data := filepath.Join(folder, name)
		if err := os.WriteFile(data, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		args := []string{"eval", "--model", dir, "--pairs", "--data", data, "--all", "--json"}
		if strings.HasSuffix(name, ".csv") {
			args = append(args, "--task-set", "text=premise", "--task-set", "pair=hypothesis")
		}
		var got eval.Report
		out := works(t, args...)
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		// Probabilities are rounded to six decimals.
		if got.Samples != n || math.Abs(got.Value-float64(right)/n) > 1e-9 || math.Abs(got.Loss-loss) > 1e-5 {
			t.Errorf("%s\npredict: %d right of %d, loss %v", out, right, n, loss)
		}
	}
	data := filepath.Join(folder, "pairs.jsonl")
	out := works(t, "eval", "--model", dir, "--pairs", "--data", data)
	if strings.Count(out, "\nbaseline ") != 3 {
		t.Error(out)
	}
	refuses(t, `setting "pair": unknown`, "eval", "--model", dir, "--data", data, "--task-set", "pair=x")
	refuses(t, `it has no key "x"`, "eval", "--model", dir, "--pairs", "--data", data, "--task-set", "pair=x")
	refuses(t, "a file of a folder is one text", "eval", "--model", dir, "--pairs", "--data", folder)
	refuses(t, "does not classify texts", "eval", "--model", tinyModel, "--pairs", "--data", data)
	refuses(t, "leave no room beside special tokens", "eval", "--model", dir, "--pairs", "--data", data, "--task-set", "length=4")
}

// vitFolder returns a copy of a vit with classes, whose rules prepare pictures for it. It skips the
// test without the fixture.
func vitFolder(t *testing.T) string {
	t.Helper()
	const dir = "../../../shared/fixtures/hf/vit_classifier"
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("the fixture is not there: %v", err)
	}
	to := t.TempDir()
	for _, name := range []string{"config.json", "model.safetensors"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), text, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(to, "preprocessor_config.json"), []byte(`{"image_processor_type":"ViTImageProcessor","size":{"height":48,"width":48},"resample":3}`), 0o666); err != nil {
		t.Fatal(err)
	}
	return to
}

// writePictures writes n pictures of random levels, divided among folders.
func writePictures(t *testing.T, n int, folders ...string) (paths []string) {
	t.Helper()
	root := t.TempDir()
	for i := range n {
		m := image.NewRGBA(image.Rect(0, 0, 20+i, 90-i))
		for k := range m.Pix {
			m.Pix[k] = byte((k*k*(i+3) + k/37) % 251)
			if k%4 == 3 {
				m.Pix[k] = 255
			}
		}
		dir := filepath.Join(root, folders[i%len(folders)])
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, fmt.Sprintf("%02d.png", i))
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := png.Encode(f, m); err != nil {
			t.Fatal(err)
		}
		f.Close()
		paths = append(paths, path)
	}
	return paths
}

// TestPredictForwardAndEvalReadPictures compares the three verbs on the same pictures.
func TestPredictForwardAndEvalReadPictures(t *testing.T) {
	t.Parallel()
	dir := vitFolder(t)
	folders := []string{"label_0", "LABEL_3", "label_5"}
	paths := writePictures(t, 12, folders...)
	right, loss := 0, 0.
	for i, path := range paths {
		out := works(t, "predict", "--model", dir, "--json", path)
		p := lineFields(t, out)
		class := []int{0, 3, 5}[i%3]
		name := fmt.Sprintf("LABEL_%d", class)
		if p["label"] == name {
			right++
		}
		said := p["probabilities"].(map[string]any)[name].(float64)
		loss -= math.Log(said) / float64(len(paths))
		if i > 1 {
			continue
		}
		npz := filepath.Join(t.TempDir(), "out.npz")
		works(t, "forward", "--model", dir, path, npz)
		z, err := array.OpenNPZ(npz)
		if err != nil {
			t.Fatal(err)
		}
		a, err := z.ReadArray("logits")
		if err != nil {
			t.Fatal(err)
		}
		z.Close()
		logits, err := a.Float64()
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.
		for _, x := range logits {
			sum += math.Exp(x)
		}
		if got := math.Exp(logits[class]) / sum; math.Abs(got-said) > 1e-6 { // of six decimals
			t.Errorf("%s: forward %v, predict %v", path, got, said)
		}
	}
	root := filepath.Dir(filepath.Dir(paths[0]))
	var got eval.Report
	out := works(t, "eval", "--model", dir, "--data", root, "--all", "--json")
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if got.Samples != int64(len(paths)) || math.Abs(got.Value-float64(right)/float64(len(paths))) > 1e-9 || math.Abs(got.Loss-loss) > 1e-5 {
		t.Errorf("%s\npredict: %d right of %d, loss %v", out, right, len(paths), loss)
	}
	if len(got.Classes) != 6 || len(got.Confusion) != 6 || len(got.Baselines) != 1 {
		t.Error(out)
	}
	if out = works(t, "eval", "--model", dir, "--task", "picture", "--data", root); strings.Count(out, "\nbaseline ") != 2 {
		t.Error(out)
	}
	refuses(t, "--task: file, the vit has picture", "eval", "--model", dir, "--task", "file", "--data", root)
	refuses(t, "--task-set: pictures", "eval", "--model", dir, "--data", root, "--task-set", "side=8")
	refuses(t, "--pairs: the vit of", "eval", "--model", dir, "--pairs", "--data", root)
	refuses(t, "--pairs: an input is a PNG or JPEG", "predict", "--model", dir, "--pairs", paths[0])
	refuses(t, "picture: ", "predict", "--model", dir, writeText(t, "no picture"))
	for _, shape := range [][]int{{1, 48, 48, 3}, {1, 1, 144, 48}, {1, 12, 24, 24}, {3, 48, 48}} { // as many numbers
		a, err := array.New("pixel_values", make([]float32, 3*48*48), shape...)
		if err != nil {
			t.Fatal(err)
		}
		in := written(t, "in.npz", a)
		want := fmt.Sprintf("pixel_values: has the shape %v, needs [B,3,48,48]", shape)
		refuses(t, want, "predict", "--model", dir, in)
		refuses(t, want, "forward", "--model", dir, in, filepath.Join(t.TempDir(), "out.npz"))
	}
	refuses(t, "--grad reads do from a file .npz", "forward", "--model", dir, "--grad", paths[0], filepath.Join(t.TempDir(), "out.npz"))
	refuses(t, "the model reads pictures as preprocessor_config.json prepares them", "train", "--init", dir, "--task", "picture", "--data", root,
		"--task-set", "as=patches", "--task-set", "patch=8", "--task-set", "side=48", "--steps", "1", "--out", filepath.Join(t.TempDir(), "run"))
	if err := os.WriteFile(filepath.Join(dir, "preprocessor_config.json"), []byte(`{"crop_pct":0.9}`), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, verb := range [][]string{{"predict", paths[0]}, {"forward", paths[0], filepath.Join(t.TempDir(), "out.npz")}, {"eval", "--data", root}} {
		refuses(t, "preprocessor_config.json: crop_pct: is 0.9", append(verb, "--model", dir)...)
	}
	works(t, "predict", "--model", dir, "../../../shared/fixtures/hf/vit_classifier/ref.npz") // arrays need no rules
}

// TestPredictReadsPixels compares classes with the logits of a reference.
func TestPredictReadsPixels(t *testing.T) {
	t.Parallel()
	const dir = "../../../shared/fixtures/hf/vit_classifier"
	ref, err := array.OpenNPZ(filepath.Join(dir, "ref.npz"))
	if err != nil {
		t.Skipf("the fixture is not there: %v", err)
	}
	defer ref.Close()
	a, err := ref.ReadArray("logits")
	if err != nil {
		t.Fatal(err)
	}
	logits, err := a.Float64()
	if err != nil {
		t.Fatal(err)
	}
	out := works(t, "predict", "--model", dir, "--json", filepath.Join(dir, "ref.npz"))
	lines := strings.Split(strings.TrimSpace(out), "\n")
	n := a.Shape[0]
	if len(lines) != n {
		t.Fatalf("%d lines of %d images: %s", len(lines), n, out)
	}
	classes := len(logits) / n
	for i, line := range lines {
		var p struct{ Probabilities map[string]float64 }
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatal(err)
		}
		sum := 0.
		for _, x := range logits[i*classes:][:classes] {
			sum += math.Exp(x)
		}
		for class, x := range logits[i*classes:][:classes] {
			if got, want := p.Probabilities[fmt.Sprintf("LABEL_%d", class)], math.Exp(x)/sum; math.Abs(got-want) > 2e-5 {
				t.Errorf("image %d: class %d has %v, the reference %v", i, class, got, want)
			}
		}
	}
	t.Logf("compared %d images", n)
}

// writeText writes a file of text and returns its path.
func writeText(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "text.txt")
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestInspectReadsPublishedFolders(t *testing.T) {
	t.Parallel()
	dir := writeClassifier(t, "BertForSequenceClassification")
	out := works(t, "inspect", dir)
	for _, want := range []string{
		"published model", "BertForSequenceClassification", "WordPiece of", "classes of a sequence: bad, good, fair", "learned for", "2 query heads",
		"encoder.layer.0.attention.self.query.weight", "layers.0.attn.q_proj.weight", "F32",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not printed:\n%s", want, out)
		}
	}
	var found struct {
		Kind, Family, Architecture string
		Head                       struct{ Classes []string }
		Tokenizer                  struct {
			Kind   string
			Tokens int
		}
		Layers    []struct{} `json:"layer_attention"`
		Tensors   []struct{ Tensor string }
		Config    struct{ Layers int }
		Positions string `json:"position_encoding"`
	}
	out = works(t, "inspect", "--json", dir)
	checkKeys(t, "inspect", out)
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		t.Fatal(err)
	}
	if found.Kind != "published model" || found.Family != "bert" || len(found.Head.Classes) != 3 || found.Tokenizer.Kind != "WordPiece" ||
		len(found.Layers) != found.Config.Layers || len(found.Tensors) == 0 || found.Positions != "learned" {
		t.Errorf("%+v", found)
	}
}

// TestGenerateOfAnEncoderDecoderIsItsReference compares targets of arg-max, of ids and of
// texts, with a reference in float64.
func TestGenerateOfAnEncoderDecoderIsItsReference(t *testing.T) {
	t.Parallel()
	const dir = "../../../shared/models/bart-g2p-us"
	ref, err := array.OpenNPZ(filepath.Join(dir, "ref_hf_f64.npz"))
	if err != nil {
		t.Skipf("the trained model is not there: %v", err)
	}
	defer ref.Close()
	read := func(name string) []int64 {
		a, err := ref.ReadArray(name)
		if err != nil {
			t.Fatal(err)
		}
		ids, err := a.Int64()
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	var config struct {
		Source string `json:"grapheme_chars"`
		Target string `json:"phoneme_chars"`
	}
	text, err := os.ReadFile(filepath.Join(dir, "hf", "config.json"))
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	spell := func(ids []int64, chars string) (word string) {
		for _, id := range ids {
			if id >= 4 {
				word += string([]rune(chars)[id])
			}
		}
		return word
	}
	for i := range 5 {
		source, want := read(fmt.Sprintf("ids%d", i)), read(fmt.Sprintf("gen%d", i))[1:] // after the start
		a, err := array.New("input_ids", source, 1, len(source))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "in.npz")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := array.WriteNPZ(f, []*array.Array{a}); err != nil {
			t.Fatal(err)
		}
		f.Close()
		var got struct{ IDs []int64 }
		out := works(t, "generate", "--model", filepath.Join(dir, "hf"), "--ids", path, "--tokens", fmt.Sprint(len(want)), "--temperature", "0", "--json")
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.IDs, want) {
			t.Errorf("word %d: %v, want %v", i, got.IDs, want)
		}
		out = works(t, "generate", "--model", filepath.Join(dir, "hf"), "--prompt", spell(source, config.Source), "--tokens", "60", "--temperature", "0")
		if phonemes := spell(want, config.Target); out != phonemes {
			t.Errorf("%s: %q, want %q", spell(source, config.Source), out, phonemes)
		}
	}
	t.Log("compared 5 words")
	refuses(t, "is an encoder-decoder, whose texts are not saved", "generate", "--model", filepath.Join(dir, "hf"), "--prompt", "word", "--save", filepath.Join(t.TempDir(), "s"))
	refuses(t, "sessions need a source", "score", "--model", filepath.Join(dir, "hf"), writeText(t, "text"))
}

func TestMapsReadAPublishedFolder(t *testing.T) {
	t.Parallel()
	out := works(t, "maps", "--model", tinyModel, "--text", "the cat sat", "--layers", "1", "--json", "--out", filepath.Join(t.TempDir(), "maps.html"))
	if strings.Count(out, `"entropy"`) != 2 || !strings.Contains(out, `"layer": "layers.1.attn"`) {
		t.Error(out)
	}
	refuses(t, "has no task", "maps", "--model", tinyModel, "--sample", "0")
}

// TestDecodersMayHaveMoreRowsThanTokens: a text tunes such a model, and all that reads the run
// reads it, and the folder that it is exported to.
func TestDecodersMayHaveMoreRowsThanTokens(t *testing.T) {
	t.Parallel()
	words, err := tokenizer.Train(t.Context(), nil, 256)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.New(model.Config{Kind: model.Decoder, Vocab: 264, Layers: 1, Heads: 2, Width: 8, Hidden: 16, Context: 32,
		Positions: model.Rotary, Norm: model.RMSNorm, Activation: model.SwiGLU, Mechanism: "softmax"}, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	folder, text, run, out := filepath.Join(root, "folder"), filepath.Join(root, "text"), filepath.Join(root, "run"), filepath.Join(root, "out")
	if err := published.Write(folder, m, words); err != nil {
		t.Fatal(err)
	}
	wrote(t, text, strings.Repeat("the cat sat on the mat\n", 100))
	works(t, "train", "--init", folder, "--data", text, "--steps", "2", "--context", "16", "--batch", "2", "--sample-tokens", "9", "--out", run, "--quiet")
	works(t, "train", "--resume", "--out", run, "--steps", "3", "--quiet")
	works(t, "eval", "--model", run)
	works(t, "export", "--model", run, "--out", out)
	for _, dir := range []string{run, out} {
		if text := works(t, "generate", "--model", dir, "--prompt", "the", "--tokens", "100", "--seed", "3"); !strings.Contains(text, "\ufffd") {
			t.Errorf("%s: %q", dir, text)
		}
		works(t, "score", "--model", dir, text)
		works(t, "eval", "--model", dir, "--data", text)
		works(t, "inspect", dir)
	}
	score := func(more ...string) (r eval.Report) {
		t.Helper()
		if err := json.Unmarshal([]byte(works(t, append([]string{"eval", "--model", folder, "--data", text, "--json"}, more...)...)), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	sideBySide, overlapping := score(), score("--stride", "5")
	if same := score("--stride", "32"); same.Score != sideBySide.Score {
		t.Errorf("windows of 32 have the score %+v, with a stride of 32 %+v", sideBySide.Score, same.Score)
	}
	if overlapping.Tokens != sideBySide.Tokens || overlapping.Loss == sideBySide.Loss {
		t.Errorf("windows have the score %+v, with a stride of 5 %+v", sideBySide.Score, overlapping.Score)
	}
	refuses(t, "--stride: 33 tokens, a window has 32", "eval", "--model", folder, "--data", text, "--stride", "33")
	refuses(t, "--stride: is for a text", "eval", "--model", folder, "--data", text, "--stride", "3", "--task", "file")
}

// Verbs that open a folder pass over fields that are named, and tell them.
func TestVerbsPassOverFieldsThatAreNamed(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "model")
	if err := os.CopyFS(dir, os.DirFS(tinyModel)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "config.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), "{", `{"depth_rule":3,`, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	in, lines, out := writeIDs(t), textsOf(t, "the cat sat\n"), filepath.Join(t.TempDir(), "out")
	for _, args := range [][]string{
		{"embed", "--model", dir, "--out", out + ".npy", lines},
		{"forward", "--model", dir, in, out + ".npz"},
		{"inspect", dir},
	} {
		refuses(t, "depth_rule: is 3, but the field is unknown here and may change the function; if it does not, --ignore-field passes over it", args...)
		if text := works(t, append(args, "--ignore-field", "depth_rule")...); args[0] == "inspect" && !strings.Contains(text, "config.json: depth_rule is ignored, it is 3") {
			t.Errorf("inspect printed\n%s", text)
		}
	}
	refuses(t, "hidden_rule: fields of published models alone are ignored", "predict", "--model", trained(t), "--ignore-field", "hidden_rule", lines)
}
