package published

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/strict"
)

// The poolings of modules.json, by the member of their config.json that is true.
const (
	poolMean     = "pooling_mode_mean_tokens"
	poolFirst    = "pooling_mode_cls_token"
	poolMax      = "pooling_mode_max_tokens"
	poolLast     = "pooling_mode_lasttoken"
	poolRoot     = "pooling_mode_mean_sqrt_len_tokens"
	poolWeighted = "pooling_mode_weightedmean_tokens"
)

// poolings lists the poolings with their names in newer folders and in descriptions. Vectors of
// several poolings are joined in this order, unless a newer folder lists another one.
var poolings = []struct{ member, mode, kind string }{
	{poolFirst, "cls", "cls"},
	{poolMax, "max", "max"},
	{poolMean, "mean", "mean"},
	{poolRoot, "mean_sqrt_len_tokens", "mean_sqrt_len"},
	{poolWeighted, "weightedmean", "weighted_mean"},
	{poolLast, "lasttoken", "last"},
}

// sentence is what a folder says about vectors of texts.
type sentence struct {
	pools     []string // whose vectors are joined
	steps     []step   // after the poolings
	keeps     int      // numbers of a vector that are kept, of truncate_dim; 0: all
	maxTokens int      // 0: no limit but the model's
	isCapped  bool     // the model's context bounds texts, too
	prompts   Prompts
	isGiven   bool // modules.json exists

	lacksPrompt bool // vectors are of the rows after a prompt
	isLowercase bool // the tokenizer needs to write texts in lower case
}

// step is a module after the poolings.
type step struct{ dense *dense } // nil: the vector is divided by its length

// isNormalised reports whether the length of vectors is 1.
func (s *sentence) isNormalised() bool {
	return len(s.steps) > 0 && s.steps[len(s.steps)-1].dense == nil && s.keeps == 0
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

// readSentence reads modules.json and its neighbours for rows of width numbers; 0: of any number.
// Without modules.json vectors are means of the tokens.
func readSentence(dir string, width int) (*sentence, error) {
	s := &sentence{pools: []string{poolMean}}
	modules, err := readModules(dir)
	if err != nil || modules == nil {
		return s, err
	}
	s.isGiven, s.pools = true, nil
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
			s.steps = nil // of the pooling before
		case i > 0 && kind == "Normalize":
			if err := checkNormalize(dir, x.Path); err != nil {
				return nil, err
			}
			if s.pools != nil { // before a pooling there is nothing to normalise
				s.steps = append(s.steps, step{})
			}
		case i > 0 && kind == "Dense" && s.pools != nil:
			d, err := readDense(dir, x.Path, s.width(width))
			if err != nil {
				return nil, err
			}
			s.steps = append(s.steps, step{d})
		default:
			return nil, fmt.Errorf("modules.json: module %d is %q at %q, supported are Transformer, Pooling, and behind it Dense and Normalize", i, infile.Shorten(x.Type), infile.Shorten(x.Path))
		}
	}
	if s.pools == nil {
		return nil, errors.New("modules.json: has no Pooling, which makes a vector of the tokens")
	}
	return s, s.readLimits(dir)
}

// width returns the numbers of a vector after the steps, before it is shortened, for rows of width
// numbers; 0: any number.
func (s *sentence) width(width int) int {
	width *= len(s.pools)
	for _, x := range s.steps {
		if x.dense != nil {
			width = x.dense.out
		}
	}
	return width
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
		if err = strict.Check(text, maxDepth); err != nil {
			err = fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
		}
	}
	return text, err
}

// readPooling reads config.json of the module of pooling.
func (s *sentence) readPooling(dir, path string) error {
	name := filepath.Join(path, configFile)
	text, err := readSmall(dir, name)
	if err == nil && text == nil {
		err = fmt.Errorf("%s: is missing, a Pooling module needs it: %w", name, fs.ErrNotExist)
	}
	if err != nil {
		return err
	}
	f, err := parseFields(text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if s.pools = nil; f.has("pooling_mode") { // of newer folders, in place of the flags
		s.pools = f.poolingModes()
	}
	hasModes := s.pools != nil
	for _, row := range poolings {
		if f.flag(row.member, false) && !hasModes {
			s.pools = append(s.pools, row.member)
		}
	}
	for member := range f.values {
		if strings.HasPrefix(member, "pooling_mode_") {
			f.needs(member, "true", "false")
			if !slices.ContainsFunc(poolings, func(row struct{ member, mode, kind string }) bool { return row.member == member }) {
				f.needs(member, "false")
			}
		}
	}
	if s.pools == nil {
		s.pools = []string{poolMean}
	}
	s.lacksPrompt = !f.flag("include_prompt", true)
	if err := f.finishFile(poolingFile); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// poolingModes returns the poolings that pooling_mode names: one, or a list of them.
func (f *fields) poolingModes() (pools []string) {
	const name = "pooling_mode"
	modes := make([]string, 1)
	if f.values[name][0] == '[' {
		f.decode(name, "a name or a list of names", &modes)
	} else {
		f.decode(name, "a name or a list of names", &modes[0])
	}
	if len(modes) == 0 || len(modes) > len(poolings) {
		f.fail(name, "has %d names, from 1 to %d are supported", len(modes), len(poolings))
		return nil
	}
	for _, mode := range modes {
		known := false
		for _, row := range poolings {
			if row.mode == mode {
				pools, known = append(pools, row.member), true
			}
		}
		if !known {
			f.fail(name, "is %s, supported are cls, max, mean, mean_sqrt_len_tokens, weightedmean and lasttoken", shorten(f.values[name]))
		}
	}
	return pools
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
	if f.has("truncate_dim") {
		s.keeps = f.count("truncate_dim", 0)
	}
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

// apply returns the vector of rows [n,w]. The first skip rows are of a prompt that the vector
// leaves out.
func (s *sentence) apply(rows []float32, n, skip, w int) []float32 {
	v := make([]float32, len(s.pools)*w)
	for i, pool := range s.pools {
		poolRows(v[i*w:][:w], pool, rows, n, skip)
	}
	for _, x := range s.steps {
		if x.dense == nil {
			normaliseVector(v)
		} else {
			v = x.dense.apply(v)
		}
	}
	if s.keeps > 0 {
		v = v[:min(s.keeps, len(v))]
	}
	return v
}

// poolRows sets v [w] to the pooling of the rows [n,w] after the first skip.
func poolRows(v []float32, pool string, rows []float32, n, skip int) {
	w := len(v)
	switch pool {
	case poolFirst:
		copy(v, rows[skip*w:][:w])
		return
	case poolLast:
		copy(v, rows[(n-1)*w:][:w])
		return
	case poolMax:
		copy(v, rows[skip*w:][:w])
		for i := skip; i < n; i++ {
			for j, x := range rows[i*w:][:w] {
				v[j] = max(v[j], x)
			}
		}
		return
	}
	divisor := float64(n - skip)
	switch pool {
	case poolRoot:
		divisor = math.Sqrt(divisor)
	case poolWeighted: // rows count by their places in the text with the prompt
		divisor *= float64(n+skip+1) / 2
	}
	for j := range v {
		var sum float64
		for i := skip; i < n; i++ {
			x := float64(rows[i*w+j])
			if pool == poolWeighted {
				x *= float64(i + 1)
			}
			sum += x
		}
		v[j] = float32(sum / divisor)
	}
}

// normaliseVector divides v by its length.
func normaliseVector(v []float32) {
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	length := max(math.Sqrt(sum), 1e-12)
	for j, x := range v {
		v[j] = float32(float64(x) / length)
	}
}

// ShortenVector returns the first numbers of a vector, as many as dimensions says, divided by their
// length. Only vectors of models that were trained for it can be shortened. ShortenVector returns
// nil for nil.
func ShortenVector(vector []float32, dimensions int) []float32 {
	if vector == nil {
		return nil
	}
	short := slices.Clone(vector[:min(dimensions, len(vector))])
	normaliseVector(short)
	return short
}
