package published

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/model"
)

// Files with rules of texts, beside the tokenizer.
const (
	generationFile      = "generation_config.json"
	tokenizerConfigFile = "tokenizer_config.json"
	specialTokensFile   = "special_tokens_map.json"
	templateFile        = "chat_template.jinja"

	maxTemplate = 1 << 20 // bytes of a chat template
)

// TextRules holds what a folder says about texts beyond the ids of its tokenizer.
type TextRules struct {
	// EndTokens are the ids that end a text. Ids outside the vocabulary are left out.
	EndTokens []int32
	// ChatTemplate renders messages as a text, in the language Jinja; "": none.
	ChatTemplate string
	// StartTokens begin the target of an encoder-decoder. ForcedTokens are the first tokens after
	// them.
	StartTokens, ForcedTokens []int32
	// Unapplied lists rules of generation that this package does not apply, such as "num_beams:
	// 4".
	Unapplied []string
	// SpecialTokens maps names such as bos_token to the texts of tokens.
	SpecialTokens map[string]string
}

// specialNames are the members of tokenizer_config.json with a special token.
var specialNames = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// ReadTextRules reads the rules from config.json and, where they exist,
// generation_config.json, tokenizer_config.json, special_tokens_map.json and
// chat_template.jinja. It returns an error if a file is too long or malformed.
func (m *Model) ReadTextRules() (*TextRules, error) {
	r := &TextRules{SpecialTokens: map[string]string{}}
	lists := []idList{{"eos_token_id", &r.EndTokens}}
	if m.plan.config.Kind == model.EncoderDecoder {
		lists = append(lists, idList{"decoder_start_token_id", &r.StartTokens}, idList{"forced_bos_token_id", &r.ForcedTokens})
	}
	for _, list := range lists {
		ids, err := readTokens(m.dir, list.name)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if id >= 0 && id < int64(m.plan.config.Vocab) {
				*list.ids = append(*list.ids, int32(id))
			}
		}
	}
	if m.plan.config.Kind != model.Encoder {
		var err error
		if r.Unapplied, err = unappliedRules(m.dir); err != nil {
			return nil, err
		}
	}
	for _, file := range []string{tokenizerConfigFile, specialTokensFile} {
		f, err := readFields(filepath.Join(m.dir, file))
		if err != nil {
			return nil, err
		}
		if f == nil {
			continue
		}
		for _, name := range specialNames {
			if text := f.specialToken(name); text != "" {
				r.SpecialTokens[name] = text
			}
		}
		if file == tokenizerConfigFile {
			r.ChatTemplate = f.chatTemplate()
		}
		if f.err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(m.dir, file), f.err)
		}
		if f.has("added_tokens_decoder") { // transformers then ignores the other file
			break
		}
	}
	text, err := infile.ReadBounded(filepath.Join(m.dir, templateFile), maxTemplate)
	if err == nil {
		r.ChatTemplate = string(text)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return r, nil
}

// idList is where the ids of a member go.
type idList struct {
	name string
	ids  *[]int32
}

// readTokens returns the ids of a member of generation_config.json of a folder, without it
// of config.json.
func readTokens(dir, name string) ([]int64, error) {
	for _, file := range []string{generationFile, configFile} {
		path := filepath.Join(dir, file)
		f, err := readFields(path)
		if err != nil {
			return nil, err
		}
		if f == nil || !f.has(name) {
			continue
		}
		var list []int64
		if f.values[name][0] == '[' {
			f.decode(name, "an integer or a list of them", &list)
		} else {
			list = make([]int64, 1)
			f.decode(name, "an integer or a list of them", &list[0])
		}
		if f.err != nil {
			return nil, fmt.Errorf("%s: %w", path, f.err)
		}
		return list, nil
	}
	return nil, nil
}

// readFields reads the members of a JSON file; nil without the file.
func readFields(path string) (*fields, error) {
	text, err := infile.ReadBounded(path, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f, err := parseFields(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// hasTypeInputs reports whether a tokenizer gives types of tokens to the model of a folder:
// model_input_names of tokenizer_config.json has them, or is missing.
func hasTypeInputs(dir string) (bool, error) {
	path := filepath.Join(dir, tokenizerConfigFile)
	f, err := readFields(path)
	if f == nil {
		return true, err
	}
	const types = "token_type_ids"
	names := []string{types}
	if f.decode("model_input_names", "a list of names", &names); f.err != nil {
		return false, fmt.Errorf("%s: %w", path, f.err)
	}
	return slices.Contains(names, types), nil
}

// specialToken returns the text of a special token: a string, or an object's content.
func (f *fields) specialToken(name string) string {
	if f.has(name) && f.values[name][0] == '{' {
		var o struct {
			Content string `json:"content"`
		}
		f.decode(name, "an object with content", &o)
		return o.Content
	}
	return f.text(name, "")
}

// chatTemplate returns the template: a string, or the one named default in a list.
func (f *fields) chatTemplate() string {
	const name = "chat_template"
	if !f.has(name) || f.values[name][0] != '[' {
		return f.text(name, "")
	}
	var list []struct {
		Name     string          `json:"name"`
		Template json.RawMessage `json:"template"`
	}
	f.decode(name, "a string or a list of named templates", &list)
	for _, t := range list {
		var text string
		if t.Name == "default" && json.Unmarshal(t.Template, &text) == nil {
			return text
		}
	}
	return ""
}
