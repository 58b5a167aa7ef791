package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/internal/strict"
)

// Ids of the sequences in a template.
const (
	sequenceA = -1
	sequenceB = -2
)

// templateItem is a special token or a sequence of a template.
type templateItem struct {
	id   int32 // or sequenceA, sequenceB
	kind int32 // type id
}

// offsetTrim takes spaces off the offsets of tokens of byte-level BPE.
type offsetTrim struct{ prefixed bool }

// trimOffsets takes a character off the offsets of a token for each of its spaces.
func (t *Tokenizer) trimOffsets(input []byte, ids []int32, offsets [][2]int) {
	spaces := span{} // the last run of white space in front of an added token
	for i, id := range ids {
		token, o := t.tokens[id], &offsets[i]
		if t.isAdded[id] { // with the spaces that it takes, which may be those of other tokens too
			if o[0] < spaces.start || o[0] >= spaces.end {
				spaces = span{o[0], len(input) - len(bytes.TrimLeftFunc(input[o[0]:], isByteSpace))}
			}
			if o[0] < spaces.end && o[1] <= spaces.end {
				_, n := utf8.DecodeRune(input[o[0]:o[1]])
				if t.trim.prefixed && (i == 0 || o[0] == 0) && n == o[1]-o[0] {
					o[1] = o[0]
				} else {
					o[0] = o[1]
				}
				continue
			}
			token = string(input[o[0]:o[1]])
		}
		body := strings.TrimLeftFunc(token, isByteSpace)
		leading := utf8.RuneCountInString(token[:len(token)-len(body)])
		trailing := leading
		if body != "" {
			trailing = utf8.RuneCountInString(body[len(strings.TrimRightFunc(body, isByteSpace)):])
		}
		if leading == 1 && t.trim.prefixed && (i == 0 || o[0] == 0) { // more are not all added
			leading = 0
		}
		for ; leading > 0 && o[0] < o[1]; leading-- {
			_, n := utf8.DecodeRune(input[o[0]:o[1]])
			o[0] += n
		}
		for ; trailing > 0 && o[0] < o[1]; trailing-- {
			_, n := utf8.DecodeLastRune(input[o[0]:o[1]])
			o[1] -= n
		}
	}
}

// isByteSpace reports whether a character is white space, or the space of byte-level BPE.
func isByteSpace(r rune) bool { return r == 'Ġ' || isSpace(r) }

// templateSpec is the JSON of an item of TemplateProcessing.
type templateSpec struct {
	SpecialToken *struct {
		ID     string `json:"id"`
		TypeID int32  `json:"type_id"`
	}
	Sequence *struct {
		ID     string `json:"id"`
		TypeID int32  `json:"type_id"`
	}
}

// specialSpec is the JSON of a special token of TemplateProcessing.
type specialSpec struct {
	ID     string   `json:"id"`
	IDs    []int32  `json:"ids"`
	Tokens []string `json:"tokens"`
}

// template returns the items of a list of TemplateProcessing.
func (t *Tokenizer) template(name string, list []templateSpec, special map[string]specialSpec) ([]templateItem, error) {
	var items []templateItem
	for i, spec := range list {
		switch {
		case spec.Sequence != nil && spec.Sequence.ID == "A":
			items = append(items, templateItem{sequenceA, spec.Sequence.TypeID})
		case spec.Sequence != nil && spec.Sequence.ID == "B":
			items = append(items, templateItem{sequenceB, spec.Sequence.TypeID})
		case spec.SpecialToken != nil:
			s, ok := special[spec.SpecialToken.ID]
			if !ok {
				return nil, fmt.Errorf("post_processor: %s: item %d is %q, which is not among the special tokens", name, i, spec.SpecialToken.ID)
			}
			for _, id := range s.IDs {
				if err := t.checkID(id); err != nil {
					return nil, fmt.Errorf("post_processor: %s: %w", name, err)
				}
				items = append(items, templateItem{id, spec.SpecialToken.TypeID})
			}
		default:
			return nil, fmt.Errorf("post_processor: %s: item %d is neither a special token nor sequence A or B", name, i)
		}
	}
	return items, nil
}

// hasSequences reports whether a template has the sequences want, in this order, and no other.
func hasSequences(list []templateItem, want ...int32) bool {
	var got []int32
	for _, item := range list {
		if item.id < 0 {
			got = append(got, item.id)
		}
	}
	return slices.Equal(got, want)
}

// readPostProcessor sets the templates and the trimming of offsets.
func (t *Tokenizer) readPostProcessor(raw json.RawMessage, b *bounds) error {
	kind, err := typeName("post_processor", raw)
	if err != nil || kind == "" {
		return err
	}
	switch kind {
	case "Sequence":
		var s struct {
			Type       string            `json:"type"`
			Processors []json.RawMessage `json:"processors"`
		}
		if err := decodeStrict("post_processor", raw, &s); err != nil {
			return err
		}
		if err := b.open("post_processor"); err != nil {
			return err
		}
		for _, p := range s.Processors {
			if err := t.readPostProcessor(p, b); err != nil {
				return err
			}
		}
		b.depth--
	case "TemplateProcessing":
		var s struct {
			Type          string                 `json:"type"`
			Single        []templateSpec         `json:"single"`
			Pair          []templateSpec         `json:"pair"`
			SpecialTokens map[string]specialSpec `json:"special_tokens"`
		}
		if err := decodeStrict("post_processor", raw, &s); err != nil {
			return err
		}
		if err := t.setOnce(kind, &t.hasTemplate); err != nil {
			return err
		}
		if t.single, err = t.template("single", s.Single, s.SpecialTokens); err != nil {
			return err
		}
		if t.pair, err = t.template("pair", s.Pair, s.SpecialTokens); err != nil {
			return err
		}
		if !hasSequences(t.single, sequenceA) {
			return errors.New("post_processor: single: needs sequence A once, and no B")
		}
		if len(t.pair) > 0 && !hasSequences(t.pair, sequenceA, sequenceB) {
			return errors.New("post_processor: pair: needs sequence A once, and then B once")
		}
	case "BertProcessing", "RobertaProcessing":
		s := struct {
			Type           string `json:"type"`
			Sep            pairOf `json:"sep"`
			Cls            pairOf `json:"cls"`
			TrimOffsets    bool   `json:"trim_offsets"`
			AddPrefixSpace bool   `json:"add_prefix_space"`
		}{TrimOffsets: kind == "RobertaProcessing", AddPrefixSpace: true}
		if err := decodeStrict("post_processor", raw, &s); err != nil {
			return err
		}
		if err := t.setOnce(kind, &t.hasTemplate); err != nil {
			return err
		}
		for _, id := range []int32{s.Cls.id, s.Sep.id} {
			if err := t.checkID(id); err != nil {
				return fmt.Errorf("post_processor: %s: %w", kind, err)
			}
		}
		cls, sep := templateItem{s.Cls.id, 0}, templateItem{s.Sep.id, 0}
		t.single = []templateItem{cls, {sequenceA, 0}, sep}
		if kind == "BertProcessing" {
			t.pair = append(t.single[:3:3], templateItem{sequenceB, 1}, templateItem{s.Sep.id, 1})
		} else {
			t.pair = append(t.single[:3:3], sep, templateItem{sequenceB, 0}, sep)
			if s.TrimOffsets {
				if err := t.setOnce(kind, &t.hasTrim); err != nil {
					return err
				}
				t.trim = &offsetTrim{s.AddPrefixSpace}
			}
		}
	case "ByteLevel":
		s := byteLevelSpec{AddPrefixSpace: true, TrimOffsets: true, UseRegex: true}
		if err := decodeStrict("post_processor", raw, &s); err != nil {
			return err
		}
		if s.TrimOffsets {
			if err := t.setOnce(kind, &t.hasTrim); err != nil {
				return err
			}
			t.trim = &offsetTrim{s.AddPrefixSpace}
		}
	default:
		return fmt.Errorf("post_processor: type is %q, which this program does not have", kind)
	}
	return nil
}

// setOnce returns an error if a post-processor of a Sequence does what one before it has done,
// which the reference then does twice.
func (t *Tokenizer) setOnce(kind string, has *bool) error {
	if *has {
		return fmt.Errorf("post_processor: %s adds tokens or trims offsets a second time, only once is read", kind)
	}
	*has = true
	return nil
}

// pairOf is a token with its id, as ["[SEP]", 102].
type pairOf struct {
	token string
	id    int32
}

// UnmarshalJSON reads a token and its id. It returns an error for another shape.
func (p *pairOf) UnmarshalJSON(data []byte) error {
	var list []json.RawMessage
	if err := strict.Unmarshal(data, &list); err != nil {
		return err
	}
	if len(list) != 2 {
		return fmt.Errorf("%d values, not a token and its id", len(list))
	}
	if err := strict.Unmarshal(list[0], &p.token); err != nil {
		return err
	}
	return strict.Unmarshal(list[1], &p.id)
}
