package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/farfield-ml/farfield/internal/strict"
)

// Bounds of files.
const (
	maxFile   = 128 << 20 // bytes of a file
	maxIDs    = 1 << 22   // ids of a vocabulary
	maxDepth  = 8         // Sequences that hold one another
	maxGrowth = 1 << 12   // bytes that components may make of one
)

// bounds follows components while they are read.
type bounds struct {
	depth  int     // Sequences that are open
	growth float64 // bytes that the components so far may make of one
}

// open begins a Sequence. It returns an error if too many are open.
func (b *bounds) open(field string) error {
	if b.depth++; b.depth > maxDepth {
		return fmt.Errorf("%s: %d Sequences hold one another, at most %d are read", field, b.depth, maxDepth)
	}
	return nil
}

// grow adds a component that may write size bytes for each of. It returns an error if all
// together may write too many for one.
func (b *bounds) grow(field, kind string, size, of int) error {
	if b.growth *= max(1, float64(size)/float64(of)); b.growth > maxGrowth {
		return fmt.Errorf("%s: with %s a byte may become %.0f, at most %d are read", field, kind, b.growth, maxGrowth)
	}
	return nil
}

// file is tokenizer.json.
type file struct {
	Version       string          `json:"version"`
	Truncation    json.RawMessage `json:"truncation"`
	Padding       json.RawMessage `json:"padding"`
	AddedTokens   []addedToken    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         json.RawMessage `json:"model"`
}

// Parse reads the bytes of a tokenizer.json. It returns an error for a component that the
// package does not have, and for a field that is missing, unknown or out of its range.
func Parse(data []byte) (*Tokenizer, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("tokenizer: %d bytes, at most %d are read", len(data), maxFile)
	}
	var f file
	if err := decodeStrict("tokenizer", data, &f); err != nil {
		return nil, err
	}
	t := &Tokenizer{
		source: bytes.Clone(data), normalizer: f.Normalizer, preTokenizer: f.PreTokenizer, ids: map[string]int32{}, special: map[int32]bool{}, isAdded: map[int32]bool{},
		single:    []templateItem{{sequenceA, 0}},
		pair:      []templateItem{{sequenceA, 0}, {sequenceB, 1}},
		tokenText: tokenText{space: "▁"},
	}
	var err error
	if t.cutsStart, err = readTruncation(f.Truncation); err != nil {
		return nil, err
	}
	b := &bounds{growth: 1}
	if t.normalize, err = readNormalizer(f.Normalizer, b); err != nil {
		return nil, err
	}
	if err := t.readPreTokenizer(f.PreTokenizer, b); err != nil {
		return nil, err
	}
	if err := t.readModel(f.Model); err != nil {
		return nil, err
	}
	if err := t.readAdded(f.AddedTokens); err != nil {
		return nil, err
	}
	if err := t.readPostProcessor(f.PostProcessor, new(bounds)); err != nil {
		return nil, err
	}
	if err := t.readDecoder(f.Decoder, &bounds{growth: 1}); err != nil {
		return nil, err
	}
	if m, is := t.model.(*wordLevel); is && len(t.decode) == 0 {
		t.tokenText.isWord = !m.hasSpaces()
	}
	return t, nil
}

// readAdded sets the added tokens.
func (t *Tokenizer) readAdded(list []addedToken) error {
	var raw, normalized []addedToken
	size := len(t.ids) // of the vocabulary
	if _, is := t.model.(*unigram); is {
		size = len(t.tokens)
	}
	next := int32(size)
	for i, a := range list {
		if a.ID < 0 || a.ID >= maxIDs {
			return fmt.Errorf("added_tokens: id %d of %q is not in 0 to %d", a.ID, a.Content, maxIDs-1)
		}
		if a.Content == "" {
			return fmt.Errorf("added_tokens: token %d is empty", i)
		}
		// The reference gives a token its id of the vocabulary, or the next free one.
		id, has := t.ids[a.Content]
		if !has {
			id = next
		}
		if id != a.ID {
			return fmt.Errorf("added_tokens: %q has the id %d, its place in the vocabulary is %d", a.Content, a.ID, id)
		}
		next = max(next, id+1)
		t.setToken(a.ID, a.Content)
		t.isAdded[a.ID] = true
		if a.Special {
			t.special[a.ID] = true
		}
		if !a.Normalized {
			raw = append(raw, a)
			continue
		}
		in := new(text)
		in.set([]byte(a.Content), 0)
		in, _ = normalizeAll(t.normalize, in, new(text))
		a.Content = string(in.b)
		t.tokens[a.ID] = a.Content
		normalized = append(normalized, a)
	}
	var err error
	if t.rawAdded, err = newAddedTokens(raw); err != nil {
		return err
	}
	t.added, err = newAddedTokens(normalized)
	return err
}

// typeName returns the type of a component; "" if the component is null or missing.
func typeName(field string, raw json.RawMessage) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	var s struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", fmt.Errorf("%s: %w", field, err)
	}
	if s.Type == "" {
		return "", fmt.Errorf("%s: type is missing", field)
	}
	return s.Type, nil
}

// decodeStrict reads JSON into v. It returns an error that names an unknown field, and for bytes
// after the value.
func decodeStrict(field string, raw []byte, v any) error {
	if err := strict.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return nil
}

// readTruncation reports whether texts lose their beginning. Lengths are not applied.
func readTruncation(raw json.RawMessage) (cutsStart bool, err error) {
	var x struct{ Direction string }
	if len(raw) == 0 {
		return false, nil
	}
	if err := json.Unmarshal(raw, &x); err != nil {
		return false, fmt.Errorf("truncation: %w", err)
	}
	switch x.Direction {
	case "", "Right":
		return false, nil
	case "Left":
		return true, nil
	}
	return false, fmt.Errorf("truncation: direction is %q, Left and Right are known", x.Direction)
}

// setVocabulary gives the ids of a vocabulary their tokens.
func (t *Tokenizer) setVocabulary(vocab map[string]int32) error {
	largest := int32(-1)
	for token, id := range vocab {
		if id < 0 || id >= maxIDs {
			return fmt.Errorf("model: id %d of %q is not in 0 to %d", id, token, maxIDs-1)
		}
		largest = max(largest, id)
	}
	t.tokens = slices.Repeat([]string{""}, int(largest+1))
	t.ids = make(map[string]int32, len(vocab))
	for token, id := range vocab {
		t.tokens[id], t.ids[token] = token, id
	}
	return nil
}

// readModel sets the model and the vocabulary.
func (t *Tokenizer) readModel(raw json.RawMessage) error {
	var kind struct {
		Type   string          `json:"type"`
		Merges json.RawMessage `json:"merges"`
		Prefix *string         `json:"continuing_subword_prefix"`
		Vocab  json.RawMessage `json:"vocab"`
	}
	if err := json.Unmarshal(raw, &kind); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	if kind.Type == "" { // files of the first versions
		vocab := bytes.TrimLeft(kind.Vocab, " \t\r\n")
		switch {
		case len(kind.Merges) > 0:
			kind.Type = "BPE"
		case len(vocab) > 0 && vocab[0] == '[':
			kind.Type = "Unigram"
		case kind.Prefix != nil:
			kind.Type = "WordPiece"
		default:
			kind.Type = "WordLevel"
		}
	}
	if t.byteTokens && kind.Type != "BPE" {
		return fmt.Errorf("model: type is %s behind a pre_tokenizer ByteLevel, not BPE", kind.Type)
	}
	switch kind.Type {
	case "WordPiece":
		s := struct {
			Type     string           `json:"type"`
			Unknown  string           `json:"unk_token"`
			Prefix   string           `json:"continuing_subword_prefix"`
			MaxChars int              `json:"max_input_chars_per_word"`
			Vocab    map[string]int32 `json:"vocab"`
		}{Unknown: "[UNK]", Prefix: "##", MaxChars: 100}
		if err := decodeStrict("model", raw, &s); err != nil {
			return err
		}
		if err := t.setVocabulary(s.Vocab); err != nil {
			return err
		}
		m, err := newWordPiece(s.Vocab, s.Prefix, s.Unknown, s.MaxChars)
		t.model = m
		t.tokenText.isWord, t.tokenText.prefix = true, s.Prefix
		return err
	case "WordLevel":
		s := struct {
			Type    string           `json:"type"`
			Unknown string           `json:"unk_token"`
			Vocab   map[string]int32 `json:"vocab"`
		}{Unknown: "<unk>"}
		if err := decodeStrict("model", raw, &s); err != nil {
			return err
		}
		id, ok := s.Vocab[s.Unknown]
		if !ok {
			return fmt.Errorf("model: unk_token %q is not in the vocabulary of %d", s.Unknown, len(s.Vocab))
		}
		t.model = &wordLevel{s.Vocab, id}
		return t.setVocabulary(s.Vocab)
	case "BPE":
		return t.readBPE(raw)
	case "Unigram":
		return t.readUnigram(raw)
	}
	return fmt.Errorf("model: type is %q, not WordPiece, BPE, Unigram or WordLevel", kind.Type)
}
