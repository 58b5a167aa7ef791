package tokenizer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// config is what tokenizer_config.json says about ids, and model_type of config.json, whose
// tokenizer_class counts where the first file has none.
type config struct {
	Class        string `json:"tokenizer_class"`
	Lowercase    *bool  `json:"do_lower_case"`
	StripAccents *bool  `json:"strip_accents"`
	Chinese      *bool  `json:"tokenize_chinese_chars"`
	Basic        *bool  `json:"do_basic_tokenize"`
	PrefixSpace  *bool  `json:"add_prefix_space"`
	AddBOS       *bool  `json:"add_bos_token"`
	AddEOS       *bool  `json:"add_eos_token"`
	Family       string `json:"model_type"`

	Added map[string]struct {
		Content string `json:"content"`
	} `json:"added_tokens_decoder"`
}

// readConfig reads config.json and tokenizer_config.json of a folder. A missing file is an
// empty one.
func readConfig(dir string) (*config, error) {
	c := new(config)
	for _, name := range []string{"tokenizer_config.json", "config.json"} {
		path := filepath.Join(dir, name)
		data, err := readBounded(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var read config
		if err := json.Unmarshal(data, &read); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if name == "config.json" {
			c.Family, c.Class = read.Family, cmp.Or(c.Class, read.Class)
		} else {
			*c = read
		}
	}
	c.Class = strings.TrimSuffix(c.Class, "Fast")
	return c, nil
}

// Classes and families with the rules that files without tokenizer.json get.
var (
	bertClasses     = strings.Fields("BertTokenizer DistilBertTokenizer ElectraTokenizer MobileBertTokenizer")
	gptClasses      = strings.Fields("GPT2Tokenizer CodeGenTokenizer")
	robertaClasses  = strings.Fields("RobertaTokenizer BartTokenizer LongformerTokenizer")
	pieceClasses    = strings.Fields("LlamaTokenizer GemmaTokenizer")
	bertFamilies    = strings.Fields("bert distilbert electra mobilebert")
	gptFamilies     = strings.Fields("gpt2 gpt_neo gptj codegen phi")
	robertaFamilies = strings.Fields("roberta bart longformer")
	pieceFamilies   = strings.Fields("llama mistral gemma")
)

// is reports whether the tokenizer is of one of these classes, or without a class of a model of
// these families.
func (c *config) is(classes, families []string) bool {
	return slices.Contains(classes, c.Class) || c.Class == "" && slices.Contains(families, c.Family)
}

// isUnnamed reports whether neither class nor family is known. c is nil for a file outside a folder.
func (c *config) isUnnamed() bool { return c == nil || c.Class+c.Family == "" }

// refuse returns the error for a file whose class has other rules.
func (c *config) refuse() error {
	return fmt.Errorf("tokenizer_class %q of model_type %q has rules of its own, which are not read; tokenizer.json has them", c.Class, c.Family)
}

// isXLMRoberta reports whether ids of sentencepiece.bpe.model are XLM-RoBERTa's.
func (c *config) isXLMRoberta() bool {
	return strings.HasPrefix(c.Class, "XLMRoberta") || c.Class == "" && c.Family == "xlm-roberta"
}

// flag returns the value of a flag that may be missing.
func flag(b *bool, missing bool) bool { return b == nil && missing || b != nil && *b }

// checkTokens returns an error unless t has the tokens that a folder adds in
// tokenizer_config.json and added_tokens.json.
func (c *config) checkTokens(dir string, t *Tokenizer) error {
	check := func(name, content string, id int32) error {
		if got, ok := t.ids[content]; content != "" && (!ok || got != id) {
			return fmt.Errorf("%s: %q has the id %d, which the vocabulary of %d does not give it", name, content, id, len(t.tokens))
		}
		return nil
	}
	for key, token := range c.Added {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil {
			return fmt.Errorf("added_tokens_decoder: %q is no id", key)
		}
		if err := check("added_tokens_decoder", token.Content, int32(id)); err != nil {
			return err
		}
	}
	const name = "added_tokens.json"
	data, err := readBounded(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var added map[string]int32
	if err == nil {
		err = json.Unmarshal(data, &added)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for content, id := range added {
		if err := check(name, content, id); err != nil {
			return err
		}
	}
	return nil
}

// checkRules returns an error if tokenizer_config.json names a rule that contradicts the rules
// of tokenizer.json. transformers then follows one or the other by its version.
func (c *config) checkRules(t *Tokenizer) error {
	var n struct {
		Type         string `json:"type"`
		Chinese      *bool  `json:"handle_chinese_chars"`
		StripAccents *bool  `json:"strip_accents"`
		Lowercase    *bool  `json:"lowercase"`
	}
	var p struct {
		Type        string `json:"type"`
		PrefixSpace *bool  `json:"add_prefix_space"`
	}
	for raw, to := range map[*json.RawMessage]any{&t.normalizer: &n, &t.preTokenizer: &p} {
		if len(*raw) == 0 {
			continue
		}
		if err := json.Unmarshal(*raw, to); err != nil {
			return err
		}
	}
	for _, x := range []struct {
		name         string
		of           bool
		config, file *bool
		missing      bool
	}{
		{"do_lower_case", n.Type == "BertNormalizer", c.Lowercase, n.Lowercase, true},
		{"tokenize_chinese_chars", n.Type == "BertNormalizer", c.Chinese, n.Chinese, true},
		{"strip_accents", n.Type == "BertNormalizer", c.StripAccents, n.StripAccents, flag(n.Lowercase, true)},
		{"add_prefix_space", p.Type == "ByteLevel", c.PrefixSpace, p.PrefixSpace, true},
	} {
		if is := flag(x.file, x.missing); x.of && x.config != nil && *x.config != is {
			return fmt.Errorf("tokenizer_config.json: %s is %t, but tokenizer.json has %t", x.name, *x.config, is)
		}
	}
	count := len(t.single)
	first, last := count > 0 && t.single[0].id >= 0, count > 0 && t.single[count-1].id >= 0
	if c.AddBOS != nil && *c.AddBOS != first {
		return fmt.Errorf("tokenizer_config.json: add_bos_token is %t, but with tokenizer.json a text begins with a special token: %t", *c.AddBOS, first)
	}
	if c.AddEOS != nil && *c.AddEOS != last {
		return fmt.Errorf("tokenizer_config.json: add_eos_token is %t, but with tokenizer.json a text ends with a special token: %t", *c.AddEOS, last)
	}
	return nil
}
