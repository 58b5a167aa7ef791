package published

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNumbersOfACrossEncoderAreBehindItsActivation: transformers and sentence-transformers put a
// sigmoid after a single output, unless the folder says otherwise.
func TestNumbersOfACrossEncoderAreBehindItsActivation(t *testing.T) {
	t.Parallel()
	const (
		sigmoid  = `"torch.nn.modules.activation.Sigmoid"`
		identity = `"torch.nn.modules.linear.Identity"`
	)
	for _, c := range []struct {
		members, sentence string
		want              bool // a sigmoid
	}{
		{``, ``, true},
		{`,"problem_type":"regression"`, ``, false},
		{`,"problem_type":"single_label_classification"`, ``, true},
		{`,"sentence_transformers":{"activation_fn":` + identity + `,"version":"5.1.0"}`, ``, false},
		{`,"sentence_transformers":{"activation_fn":` + sigmoid + `},"problem_type":"regression"`, ``, true},
		{`,"sentence_transformers":{"version":"5.1.0"}`, ``, true},
		{`,"sbert_ce_default_activation_function":` + identity, ``, false},
		{`,"sbert_ce_default_activation_function":null`, ``, true},
		{`,"sentence_transformers":{"activation_fn":` + sigmoid + `},"sbert_ce_default_activation_function":` + identity, ``, true},
		{`,"sentence_transformers":{"activation_fn":` + sigmoid + `}`, `{"activation_fn":` + identity + `,"prompts":{},"default_prompt_name":null}`, false},
		{`,"problem_type":"regression"`, `{"activation_fn":` + sigmoid + `}`, true},
	} {
		m := openClassifier(t, "BertForSequenceClassification", `,"id2label":{"0":"LABEL_0"}`+c.members)
		if c.sentence != "" {
			writeFile(t, m.dir, sentenceFile, c.sentence)
			writeFile(t, m.dir, "modules.json", `[]`)
		}
		s, err := m.ClassifyPairs(t.Context(), [][2]string{{"the cat", "a dog ran"}})
		if err != nil {
			t.Errorf("%s %s: %v", c.members, c.sentence, err)
			continue
		}
		want := float64(s[0].Logits[0])
		if c.want {
			want = 1 / (1 + math.Exp(-want))
		}
		if got := m.Numbers(&s[0]); m.ClassKind() != Regression || len(got) != 1 || got[0] != want {
			t.Errorf("%s %s: %v, want %g, of the logit %g", c.members, c.sentence, got, want, s[0].Logits[0])
		}
	}
}

func TestProbabilitiesAreBehindTheActivationOfACrossEncoder(t *testing.T) {
	t.Parallel()
	for name, isSigmoid := range map[string]bool{"activation.Sigmoid": true, "activation.Softmax": false, "linear.Identity": false} {
		m := openClassifier(t, "BertForSequenceClassification", `,"id2label":{"0":"a","1":"b"},"sentence_transformers":{"activation_fn":"torch.nn.modules.`+name+`"}`)
		s, err := m.Classify(t.Context(), []string{"the cat"})
		if err != nil {
			t.Fatal(err)
		}
		_, p := m.Probabilities(&s[0])
		a, b := float64(s[0].Logits[0]), float64(s[0].Logits[1])
		want := 1 / (1 + math.Exp(b-a))
		if isSigmoid {
			want = 1 / (1 + math.Exp(-a))
		}
		if math.Abs(p[0]-want) > 1e-12 {
			t.Errorf("%s: %g, want %g", name, p[0], want)
		}
	}
}

func TestUnsupportedSettingsOfACrossEncoderAreRefusedByName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ members, sentence, want string }{
		{`,"sentence_transformers":{"activation_fn":"torch.nn.modules.activation.Tanh"}`, ``, `config.json: sentence_transformers.activation_fn: is "torch.nn.modules.activation.Tanh"`},
		{`,"sbert_ce_default_activation_function":"my.module.Sigmoid"`, ``, `config.json: sbert_ce_default_activation_function: is "my.module.Sigmoid"`},
		{`,"sbert_ce_default_activation_function":"torch.nn.modules.activation.Softmax"`, ``, `is "torch.nn.modules.activation.Softmax"`},
		{`,"sentence_transformers":3`, ``, "config.json: sentence_transformers: a JSON object is needed"},
		{``, `{"activation_fn":7}`, sentenceFile + ": activation_fn: is 7, a string is needed"},
		{``, `{"prompts":{"query":"the "},"default_prompt_name":"query"}`, sentenceFile + `: default_prompt_name: is "query", a prompt before the texts of a classifier`},
	} {
		m := openClassifier(t, "BertForSequenceClassification", `,"id2label":{"0":"LABEL_0"}`+c.members)
		if c.sentence != "" {
			writeFile(t, m.dir, sentenceFile, c.sentence)
			writeFile(t, m.dir, "modules.json", `[]`)
		}
		if _, err := m.Classify(t.Context(), []string{"the cat"}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %q", c.members, c.sentence, err, c.want)
		}
	}
}

// TestClassesInPlaceOfACrossEncodersHaveNoActivation: a folder with another head keeps nothing
// that belongs to the head before.
func TestClassesInPlaceOfACrossEncodersHaveNoActivation(t *testing.T) {
	t.Parallel()
	m := openClassifier(t, "BertForSequenceClassification", `,"id2label":{"0":"LABEL_0"},"sentence_transformers":{"activation_fn":"torch.nn.modules.activation.Sigmoid"},"sbert_ce_default_activation_function":"torch.nn.modules.activation.Sigmoid"`)
	dir := t.TempDir()
	if err := CopyDescription(dir, m.dir, []string{"number"}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, configFile))
	if err != nil || strings.Contains(string(text), "activation_f") || !strings.Contains(string(text), `"regression"`) {
		t.Errorf("%s, %v", text, err)
	}
}

func TestClassesOfAFolderAreWrittenInTheirOrder(t *testing.T) {
	t.Parallel()
	m := openClassifier(t, "BertForSequenceClassification", "")
	classes := strings.Fields("0 1 2 3 4 5 6 7 8 9 10 11")
	dir := t.TempDir()
	if err := CopyDescription(dir, m.dir, classes); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, configFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"id2label", "label2id"} {
		_, rest, _ := strings.Cut(string(text), name)
		rest, _, _ = strings.Cut(rest, "}")
		for i, class := range classes[1:] {
			if before := strings.Index(rest, `"`+classes[i]+`":`); before < 0 || before > strings.Index(rest, `"`+class+`":`) {
				t.Errorf("%s: %s is not behind %s: %s", name, class, classes[i], rest)
			}
		}
	}
}

// writeFile writes a file of a folder.
func writeFile(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
