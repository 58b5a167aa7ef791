package pretrained

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strings"

	"github.com/farfield-ml/farfield/internal/infile"
)

// The poolings of modules.json, by the member of their config.json that is true.
const (
	poolMean  = "pooling_mode_mean_tokens"
	poolFirst = "pooling_mode_cls_token"
	poolMax   = "pooling_mode_max_tokens"
	poolLast  = "pooling_mode_lasttoken"
)

// sentence is what a folder says about vectors of texts.
type sentence struct {
	pool       string
	normalised bool
	maxTokens  int  // 0: no limit but the model's
	isCapped   bool // the model's context bounds texts, too
	prompts    Prompts
	isGiven    bool // modules.json exists

	lacksPrompt bool // vectors are of the rows behind a prompt
	isLowercase bool // the tokenizer needs to write texts in lower case
}

// maxModules bounds the modules of a folder, each with a file of its own.
const maxModules = 16

// module is an entry of modules.json.
type module struct{ Path, Type string }

// readModules reads modules.json; nil without the file. It returns an error if it is malformed, has
// more than maxModules entries, or names a folder outside of dir.
func readModules(dir string) ([]module, error) {
	text, err := readSmall(dir, "modules.json")
	if err != nil || text == nil {
		return nil, err
	}
	var entries []json.RawMessage
	if err := json.Unmarshal(text, &entries); err != nil {
		return nil, errors.New("modules.json: a JSON array of objects is needed")
	}
	if len(entries) > maxModules {
		return nil, fmt.Errorf("modules.json: has %d modules, at most %d are read", len(entries), maxModules)
	}
	modules := []module{}
	for i, entry := range entries {
		f, err := parseFields(entry)
		if err != nil {
			return nil, fmt.Errorf("modules.json: module %d: %w", i, err)
		}
		x := module{Path: f.text("path", ""), Type: f.text("type", "")}
		if err := f.finishFile(moduleEntry); err != nil {
			return nil, fmt.Errorf("modules.json: module %d: %w", i, err)
		}
		modules = append(modules, x)
		if !filepath.IsLocal(x.Path) && x.Path != "" {
			return nil, fmt.Errorf("modules.json: path %q leaves the folder", infile.Shorten(x.Path))
		}
	}
	return modules, nil
}

// readSentence reads modules.json and its neighbours. Without modules.json vectors are
// means of the tokens.
func readSentence(dir string) (*sentence, error) {
	s := &sentence{pool: poolMean}
	modules, err := readModules(dir)
	if err != nil || modules == nil {
		return s, err
	}
	s.isGiven = true
	s.pool = ""
	for i, x := range modules {
		kind := x.Type[strings.LastIndexByte(x.Type, '.')+1:]
		if !strings.HasPrefix(x.Type, "sentence_transformers.") { // code of the folder's own
			kind = ""
		}
		switch {
		case i == 0 && kind == "Transformer" && (x.Path == "" || x.Path == "."):
		case i > 0 && kind == "Pooling":
			if err := s.readPooling(dir, x.Path); err != nil {
				return nil, err
			}
			s.normalised = false // of the pooling before
		case i > 0 && kind == "Normalize":
			if err := checkNormalize(dir, x.Path); err != nil {
				return nil, err
			}
			s.normalised = s.pool != "" // before a pooling there is nothing to normalise
		default:
			return nil, fmt.Errorf("modules.json: module %d is %q at %q, supported are Transformer, Pooling and Normalize", i, infile.Shorten(x.Type), infile.Shorten(x.Path))
		}
	}
	if s.pool == "" {
		return nil, errors.New("modules.json: has no Pooling, which makes a vector of the tokens")
	}
	return s, s.readLimits(dir)
}

// checkNormalize returns an error if the file of a norm, if there is one, names other rows than the
// vector.
func checkNormalize(dir, path string) error {
	name := filepath.Join(path, configFile)
	if filepath.Clean(path) == "." {
		return nil // config.json of the model
	}
	f, err := readFields(filepath.Join(dir, name))
	if err != nil || f == nil {
		return err
	}
	f.needs("module_input_name", `"sentence_embedding"`)
	f.needs("module_output_name", `"sentence_embedding"`)
	if err := f.finishFile(normalizeFile); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// readSmall returns the content of a file of JSON; nil if it does not exist.
func readSmall(dir, name string) ([]byte, error) {
	text, err := infile.ReadBounded(filepath.Join(dir, name), maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		if err = checkJSON(text); err != nil {
			err = fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
		}
	}
	return text, err
}

// readPooling reads config.json of the module of pooling.
func (s *sentence) readPooling(dir, path string) error {
	name := filepath.Join(path, configFile)
	text, err := readSmall(dir, name)
	if err != nil {
		return err
	}
	f, err := parseFields(text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	s.pool = ""
	if f.has("pooling_mode") { // of newer folders, in place of the flags
		mode := f.text("pooling_mode", "")
		s.pool = map[string]string{"mean": poolMean, "cls": poolFirst, "max": poolMax, "lasttoken": poolLast}[mode]
		if s.pool == "" {
			f.fail("pooling_mode", "is %s, supported are mean, cls, max and lasttoken", shorten(f.values["pooling_mode"]))
		}
	}
	hasMode := s.pool != ""
	for member := range f.values {
		if !strings.HasPrefix(member, "pooling_mode_") || !f.flag(member, false) || hasMode {
			continue
		}
		if s.pool != "" {
			return fmt.Errorf("%s: %s and %s are both true, one is supported", name, infile.Shorten(s.pool), infile.Shorten(member))
		}
		s.pool = member
	}
	s.lacksPrompt = !f.flag("include_prompt", true)
	if err := f.finishFile(poolingFile); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	switch s.pool {
	case poolMean, poolFirst, poolMax, poolLast:
		return nil
	}
	return fmt.Errorf("%s: pooling is %q, supported are %s, %s, %s and %s", name, infile.Shorten(s.pool), poolMean, poolFirst, poolMax, poolLast)
}

// lengthFiles are files with the length of texts. A folder has at most one.
var lengthFiles = []string{
	"sentence_bert_config.json", "sentence_roberta_config.json", "sentence_distilbert_config.json", "sentence_camembert_config.json",
	"sentence_albert_config.json", "sentence_xlm-roberta_config.json", "sentence_xlnet_config.json",
}

// readLimits reads the length and the prompt of texts.
func (s *sentence) readLimits(dir string) error {
	for _, name := range lengthFiles {
		text, err := readSmall(dir, name)
		if err != nil {
			return err
		}
		if text == nil {
			continue
		}
		f, err := parseFields(text)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if f.has("max_seq_length") {
			s.maxTokens = f.count("max_seq_length", 0)
		}
		s.isLowercase = f.flag("do_lower_case", false)
		f.needs("transformer_task", `"feature-extraction"`)
		f.needs("module_output_name", `"token_embeddings"`)
		for _, name := range []string{"processing_kwargs", "model_args", "tokenizer_args", "config_args", "model_kwargs", "processor_kwargs", "config_kwargs"} {
			f.needs(name, "{}")
		}
		f.needsTexts("modality_config")
		if err := f.finishFile(lengthFiles[0]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		break
	}
	if s.isCapped = s.maxTokens == 0; s.isCapped {
		if err := s.readLongest(dir); err != nil {
			return err
		}
	}
	text, err := readSmall(dir, sentenceFile)
	if err != nil || text == nil {
		return err
	}
	f, err := parseFields(text)
	if err != nil {
		return fmt.Errorf("%s: %w", sentenceFile, err)
	}
	s.prompts = f.prompts()
	f.needs("model_type", `"SentenceTransformer"`)
	f.needs("truncate_dim")
	f.needs("similarity_fn_name", `"cosine"`, `"dot"`, `"euclidean"`, `"manhattan"`)
	if err := f.finishFile(sentenceFile); err != nil {
		return fmt.Errorf("%s: %w", sentenceFile, err)
	}
	return nil
}

// needsTexts records an error unless the member says that texts go through the model to its last
// hidden rows.
func (f *fields) needsTexts(name string) {
	o := f.object(name)
	if o == nil {
		return
	}
	if texts := o.object("text"); texts != nil {
		texts.needs("method", `"forward"`)
		texts.needs("method_output_name", `"last_hidden_state"`)
		o.join(texts)
	}
	f.join(o)
}

// join keeps the error of a nested object as the first one.
func (f *fields) join(o *fields) {
	if err := o.finishAll(); err != nil && f.err == nil {
		f.err = err
	}
}

// readLongest reads model_max_length, which is the length of texts without max_seq_length. The
// tokenizers of some folders have a number beyond any model, which is no length.
func (s *sentence) readLongest(dir string) error {
	f, err := readFields(filepath.Join(dir, tokenizerConfigFile))
	if err != nil || f == nil {
		return err
	}
	if n := f.number("model_max_length", 0); n >= 1 && n <= maxCount {
		s.maxTokens = int(n)
	}
	if f.err != nil {
		return fmt.Errorf("%s: %w", tokenizerConfigFile, f.err)
	}
	return nil
}

// apply returns the vector [w] of rows [n,w]. The first skip rows are of a prompt that the
// vector leaves out.
func (s *sentence) apply(rows []float32, n, skip, w int) []float32 {
	rows, n = rows[skip*w:], n-skip
	v := make([]float32, w)
	switch s.pool {
	case poolFirst:
		copy(v, rows[:w])
	case poolLast:
		copy(v, rows[(n-1)*w:][:w])
	case poolMax:
		copy(v, rows[:w])
		for i := range n {
			for j, x := range rows[i*w:][:w] {
				v[j] = max(v[j], x)
			}
		}
	default:
		for j := range v {
			var sum float64
			for i := range n {
				sum += float64(rows[i*w+j])
			}
			v[j] = float32(sum / float64(n))
		}
	}
	if s.normalised {
		var sum float64
		for _, x := range v {
			sum += float64(x) * float64(x)
		}
		length := max(math.Sqrt(sum), 1e-12)
		for j, x := range v {
			v[j] = float32(float64(x) / length)
		}
	}
	return v
}
