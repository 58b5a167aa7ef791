package tokenizer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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
	CleanUp      *bool  `json:"clean_up_tokenization_spaces"`
	CleanUpBPE   *bool  `json:"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"`
	Family       string `json:"model_type"`

	Added map[string]addedToken `json:"added_tokens_decoder"`

	fields  map[string]json.RawMessage // tokenizer_config.json
	special map[string]json.RawMessage // special_tokens_map.json, where it counts
}

// readConfig reads config.json, tokenizer_config.json and special_tokens_map.json of a folder. A
// missing file is an empty one.
func readConfig(dir string) (*config, error) {
	c := new(config)
	for _, name := range []string{"tokenizer_config.json", "config.json", "special_tokens_map.json"} {
		path := filepath.Join(dir, name)
		data, err := readBounded(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var read config
		var fields map[string]json.RawMessage
		if err == nil {
			if err = json.Unmarshal(data, &fields); err == nil && name != "special_tokens_map.json" {
				err = json.Unmarshal(data, &read)
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", path, err)
			}
		}
		if err != nil {
			return nil, err
		}
		switch name {
		case "config.json":
			c.Family, c.Class = read.Family, cmp.Or(c.Class, read.Class)
		case "special_tokens_map.json":
			if c.Added == nil { // transformers reads it without added_tokens_decoder alone
				c.special = fields
			}
		default:
			*c = read
			c.fields = fields
			if err := checkConfigFields(fields); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
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
	added, err := readAddedFile(dir)
	if err != nil {
		return err
	}
	for content, id := range added {
		if err := check(addedFile, content, id); err != nil {
			return err
		}
	}
	return nil
}

const addedFile = "added_tokens.json"

// readAddedFile reads added_tokens.json of a folder; nil if there is none.
func readAddedFile(dir string) (added map[string]int32, err error) {
	data, err := readBounded(filepath.Join(dir, addedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &added)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", addedFile, err)
	}
	return added, nil
}

// namedTokens are the fields of tokenizer_config.json and special_tokens_map.json that name one
// special token.
var namedTokens = strings.Fields("bos_token eos_token unk_token sep_token pad_token cls_token mask_token")

// named returns the special token that a field names; "" if it names none.
func (c *config) named(field string) (string, error) {
	raw := c.fields[field]
	if r, has := c.special[field]; has {
		raw = r
	}
	list, err := readNamed(field, raw)
	if err != nil || len(list) == 0 {
		return "", err
	}
	return list[0].Content, nil
}

// checkNamed returns an error if a folder names other tokens than the template of its files has.
func (c *config) checkNamed(want map[string]string) error {
	for _, field := range slices.Sorted(maps.Keys(want)) {
		if token, err := c.named(field); err != nil || token != "" && token != want[field] {
			return cmp.Or(err, fmt.Errorf("%s is %q, without tokenizer.json only %q is read", field, token, want[field]))
		}
	}
	return nil
}

// readNamed returns the special tokens of a field: a text, an object with its content, or a list
// or an object of these.
func readNamed(field string, raw json.RawMessage) (list []addedToken, err error) {
	trimmed := strings.TrimLeft(string(raw), " \t\r\n")
	switch {
	case trimmed == "" || strings.HasPrefix(trimmed, "null") || strings.HasPrefix(trimmed, "false"):
		return nil, nil
	case trimmed[0] == '"':
		var content string
		err = json.Unmarshal(raw, &content)
		list = []addedToken{{Content: content}}
	case trimmed[0] == '{' && strings.HasSuffix(field, "_token"):
		var one addedToken
		err = json.Unmarshal(raw, &one)
		list = []addedToken{one}
	case trimmed[0] == '{' || trimmed[0] == '[':
		var parts []json.RawMessage
		if trimmed[0] == '[' {
			err = json.Unmarshal(raw, &parts)
		} else {
			var byName map[string]json.RawMessage
			err = json.Unmarshal(raw, &byName)
			for _, name := range slices.Sorted(maps.Keys(byName)) {
				parts = append(parts, byName[name])
			}
		}
		for _, part := range parts {
			if err == nil {
				var more []addedToken
				more, err = readNamed("a_token", part)
				list = append(list, more...)
			}
		}
	default:
		err = errors.New("it names no token")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return list, nil
}

// specialTokens returns the special tokens that a folder names.
func (c *config) specialTokens() (list []addedToken, err error) {
	fields := maps.Clone(c.fields)
	if fields == nil {
		fields = map[string]json.RawMessage{}
	}
	maps.Copy(fields, c.special)
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		own := slices.Contains(namedTokens, field) || field == "additional_special_tokens" || field == "extra_special_tokens"
		if !own && !(strings.HasSuffix(field, "_token") && strings.HasPrefix(string(fields[field]), `"`)) {
			continue
		}
		more, err := readNamed(field, fields[field])
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	return list, nil
}

// amend returns t changed as a folder's files say about special and added tokens, in the way of
// transformers: the tokens of added_tokens_decoder replace those of the tokenizer, and named
// special tokens are recognised in texts and left out of decoded texts. Named tokens that the
// vocabulary lacks are ignored, since the model has no row for them.
func (c *config) amend(dir string, t *Tokenizer) (*Tokenizer, error) {
	var parts map[string]json.RawMessage
	var list []addedToken
	if err := json.Unmarshal(t.source, &parts); err != nil {
		return nil, err
	}
	if raw := parts["added_tokens"]; len(raw) > 0 {
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, err
		}
	}
	before := slices.Clone(list)
	put := func(a addedToken, replaces bool) {
		id, has := t.ids[a.Content]
		if !has {
			return
		}
		a.ID = id
		i := slices.IndexFunc(list, func(b addedToken) bool { return b.Content == a.Content })
		switch {
		case i < 0:
			list = append(list, a)
		case replaces:
			list[i] = a
		default:
			list[i].Special = list[i].Special || a.Special
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.Added)) {
		put(c.Added[key], true)
	}
	special, err := c.specialTokens()
	if err != nil {
		return nil, err
	}
	isSpecial := map[string]bool{}
	for _, a := range special {
		isSpecial[a.Content] = true
	}
	if c.Added == nil {
		added, err := readAddedFile(dir)
		if err != nil {
			return nil, err
		}
		for _, content := range slices.Sorted(maps.Keys(added)) {
			put(addedToken{Content: content, Normalized: !isSpecial[content], Special: isSpecial[content]}, false)
		}
	}
	for _, a := range special {
		a.Special = true
		put(a, false)
	}
	changed := map[string]any{}
	if !slices.Equal(list, before) {
		slices.SortFunc(list, func(a, b addedToken) int { return cmp.Compare(a.ID, b.ID) })
		changed["added_tokens"] = list
	}
	post, notes, err := c.template(t)
	if err != nil {
		return nil, err
	}
	t.notes = notes
	if post != nil {
		changed["post_processor"] = post
	}
	if _, isBPE := t.model.(*bpe); flag(c.CleanUp, false) && (!isBPE || flag(c.CleanUpBPE, false)) {
		changed["decoder"] = cleaningDecoder(parts["decoder"])
	}
	if len(changed) == 0 {
		return t, nil
	}
	for name, part := range changed {
		if parts[name], err = json.Marshal(part); err != nil {
			return nil, err
		}
	}
	data, err := json.Marshal(parts)
	if err != nil {
		return nil, err
	}
	if t, err = Parse(data); err == nil {
		t.notes = notes
	}
	return t, err
}

// cleaningDecoder returns a decoder with the steps of clean_up_tokenization_spaces after it.
func cleaningDecoder(raw json.RawMessage) object {
	var steps []any
	if len(raw) > 0 && string(raw) != "null" {
		steps = append(steps, raw)
	} else { // without a decoder, tokens are joined by spaces
		steps = append(steps, object{"type": "WordPiece", "prefix": "\x00", "cleanup": false})
	}
	steps = append(steps, object{"type": "Fuse"})
	for _, pair := range [][2]string{{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"},
		{" 've", "'ve"}, {" 're", "'re"}} {
		steps = append(steps, object{"type": "Replace", "pattern": object{"String": pair[0]}, "content": pair[1]})
	}
	return object{"type": "Sequence", "decoders": steps}
}

// template returns the post-processor that add_bos_token and add_eos_token ask for, which puts
// their tokens around each text. It returns nil if t keeps its own. If the flags contradict the
// post-processor of tokenizer.json in another way, t keeps it, as in transformers, and notes say
// so. template returns an error if the named tokens are malformed.
func (c *config) template(t *Tokenizer) (post object, notes []string, err error) {
	ends := [2]struct {
		name  string
		wants *bool
		token string
		id    int32
		has   bool
	}{{name: "add_bos_token", wants: c.AddBOS}, {name: "add_eos_token", wants: c.AddEOS}}
	count := len(t.single)
	differs := false
	for i, field := range []string{"bos_token", "eos_token"} {
		e := &ends[i]
		token, err := c.named(field)
		if err != nil {
			return nil, nil, err
		}
		id, known := t.ids[token]
		e.token, e.id = token, -1
		if known {
			e.id = id
		}
		at := t.single[i*(count-1)].id
		switch e.has = at >= 0; {
		case e.wants == nil || *e.wants == e.has:
		case !*e.wants && token != "" && known && at != id: // another token, as [CLS]
		case *e.wants && known && c.is(pieceClasses, pieceFamilies):
			differs = true
		default:
			does := []string{"begins", "ends"}[i] + " with no special token"
			if e.has {
				does = fmt.Sprintf("%s with %q", []string{"begins", "ends"}[i], t.tokens[at])
			}
			notes = append(notes, fmt.Sprintf("tokenizer_config.json: %s is %t, which is not followed: by tokenizer.json a text %s", e.name, *e.wants, does))
			e.wants = nil
		}
	}
	if !differs {
		return nil, notes, nil
	}
	for i := range ends {
		e := &ends[i]
		if at := t.single[i*(count-1)].id; e.has && at != e.id {
			return nil, append(notes, fmt.Sprintf("tokenizer_config.json: %s and %s are not followed beside token %d, %q, of tokenizer.json", ends[0].name, ends[1].name, at, t.tokens[at])), nil
		}
		e.has = e.has || e.wants != nil && *e.wants
	}
	special := object{}
	around := func(sequence string, kind int) (list []any) {
		for i, e := range ends {
			if i == 1 {
				list = append(list, object{"Sequence": object{"id": sequence, "type_id": kind}})
			}
			if e.has {
				special[e.token] = object{"id": e.token, "ids": []int32{e.id}, "tokens": []string{e.token}}
				list = append(list, object{"SpecialToken": object{"id": e.token, "type_id": kind}})
			}
		}
		return list
	}
	single := around("A", 0)
	return object{"type": "TemplateProcessing", "single": single, "pair": append(slices.Clone(single), around("B", 1)...), "special_tokens": special}, notes, nil
}

// component is a normalizer or pre-tokenizer, with the fields that tokenizer_config.json may
// contradict.
type component struct {
	Type          string            `json:"type"`
	Normalizers   []json.RawMessage `json:"normalizers"`
	PreTokenizers []json.RawMessage `json:"pretokenizers"`
	Chinese       *bool             `json:"handle_chinese_chars"`
	StripAccents  *bool             `json:"strip_accents"`
	Lowercase     *bool             `json:"lowercase"`
	PrefixSpace   *bool             `json:"add_prefix_space"`
	PrependScheme string            `json:"prepend_scheme"`
}

// components returns the parts of a component, also those inside of Sequences. Parse has read it.
func components(raw json.RawMessage) (list []component, err error) {
	var one component
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if err := json.Unmarshal(raw, &one); err != nil {
		return nil, err
	}
	list = append(list, one)
	for _, raw := range slices.Concat(one.Normalizers, one.PreTokenizers) {
		more, err := components(raw)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	return list, nil
}

// checkRules returns an error if tokenizer_config.json names a rule that contradicts the rules
// of tokenizer.json. transformers then follows one or the other by its version and the class.
func (c *config) checkRules(t *Tokenizer) error {
	normalizers, err := components(t.normalizer)
	if err != nil {
		return err
	}
	splits, err := components(t.preTokenizer)
	if err != nil {
		return err
	}
	lowers := false
	for _, x := range slices.Concat(normalizers, splits) {
		bert, level, meta := x.Type == "BertNormalizer", x.Type == "ByteLevel", x.Type == "Metaspace"
		lower := flag(x.Lowercase, true)
		lowers = lowers || x.Type == "Lowercase" || bert && lower
		for _, rule := range []struct {
			name   string
			of     bool
			config *bool
			file   bool
		}{
			{"do_lower_case", bert, c.Lowercase, lower},
			{"do_lower_case", x.Type == "Lowercase", c.Lowercase, true},
			{"tokenize_chinese_chars", bert, c.Chinese, flag(x.Chinese, true)},
			{"strip_accents", bert, c.StripAccents, flag(x.StripAccents, lower)},
			{"strip_accents", x.Type == "StripAccents", c.StripAccents, true},
			{"add_prefix_space", level, c.PrefixSpace, flag(x.PrefixSpace, true)},
			{"add_prefix_space", meta, c.PrefixSpace, x.PrependScheme != "never" && (x.PrependScheme != "" || flag(x.PrefixSpace, true))},
			{"add_prefix_space", x.Type == "Prepend", c.PrefixSpace, true},
		} {
			if rule.of && rule.config != nil && *rule.config != rule.file {
				return fmt.Errorf("tokenizer_config.json: %s is %t, but tokenizer.json has %t in %s", rule.name, *rule.config, rule.file, x.Type)
			}
		}
	}
	if flag(c.Lowercase, false) && !lowers && c.is(bertClasses, bertFamilies) {
		return errors.New("tokenizer_config.json: do_lower_case is true, but no normalizer of tokenizer.json writes lower case")
	}
	return nil
}
