package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/farfield-ml/farfield/internal/infile"
)

// Open reads the tokenizer of a model's folder, or of one file: tokenizer.json, vocab.txt,
// vocab.json beside merges.txt, tokenizer.model, spiece.model or sentencepiece.bpe.model. In
// a folder it takes the first of these that is there. It returns an error if there is none,
// if a file is too long or damaged, and for a component that the package does not have.
func Open(path string) (*Tokenizer, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return openFile(path, nil)
	}
	var tried []string
	for _, name := range []string{"tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model"} {
		file := filepath.Join(path, name)
		if _, err := os.Stat(file); err == nil {
			c, err := readConfig(path)
			if err != nil {
				return nil, err
			}
			return openFile(file, c)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		tried = append(tried, name)
	}
	return nil, fmt.Errorf("%s: no tokenizer: none of %s is there", path, strings.Join(tried, ", "))
}

// readBounded returns the content of a file of at most maxFile bytes.
func readBounded(path string) ([]byte, error) {
	f, err := infile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s: has more than %d bytes", path, maxFile)
	}
	return data, err
}

// openFile reads a tokenizer by the name of its file. c is nil for a file outside a folder.
func openFile(path string, c *config) (*Tokenizer, error) {
	data, err := readBounded(path)
	if err != nil {
		return nil, err
	}
	name := strings.ToLower(filepath.Base(path))
	var t *Tokenizer
	switch {
	case name == "sentencepiece.bpe.model" && c != nil && c.isXLMRoberta():
		t, err = parseXLMRoberta(data)
	case name == "sentencepiece.bpe.model" && !c.isUnnamed():
		err = fmt.Errorf("tokenizer_class %q of model_type %q has ids of its own, which are not read; tokenizer.json has them", c.Class, c.Family)
	case strings.HasSuffix(name, ".model") && !c.isUnnamed() && !c.is(pieceClasses, pieceFamilies):
		err = c.refuse()
	case strings.HasSuffix(name, ".model"):
		t, err = parseSentencePiece(data, c != nil && flag(c.AddBOS, true), c != nil && flag(c.AddEOS, false))
	case strings.HasSuffix(name, ".txt") && !strings.HasSuffix(name, "merges.txt"):
		if c == nil {
			c = new(config)
		}
		if !c.isUnnamed() && !c.is(bertClasses, bertFamilies) || !flag(c.Basic, true) {
			err = c.refuse()
		} else if err = c.checkNamed(map[string]string{"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}); err == nil {
			t, err = parseVocab(data, c)
		}
	case strings.HasSuffix(name, "vocab.json") || strings.HasSuffix(name, "merges.txt"):
		roberta := c != nil && c.is(robertaClasses, robertaFamilies)
		if !roberta && !c.isUnnamed() && (!c.is(gptClasses, gptFamilies) || flag(c.AddBOS, false)) {
			err = c.refuse()
			break
		}
		if roberta {
			if err = c.checkNamed(map[string]string{"cls_token": "<s>", "sep_token": "</s>"}); err != nil {
				break
			}
		}
		dir, base := filepath.Split(path)
		vocab, merges := data, data
		if strings.HasSuffix(name, "vocab.json") {
			merges, err = readBounded(filepath.Join(dir, base[:len(base)-len("vocab.json")]+"merges.txt"))
		} else {
			vocab, err = readBounded(filepath.Join(dir, base[:len(base)-len("merges.txt")]+"vocab.json"))
		}
		if err != nil {
			return nil, err
		}
		t, err = parseMerges(vocab, merges, roberta, c != nil && flag(c.PrefixSpace, false))
	default:
		if t, err = Parse(data); err == nil && c != nil {
			err = c.checkRules(t)
		}
	}
	if err == nil && c != nil {
		err = c.checkTokens(filepath.Dir(path), t)
	}
	if err == nil && c != nil && !strings.HasSuffix(name, ".model") {
		t, err = c.amend(filepath.Dir(path), t)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// object is a JSON object.
type object map[string]any

// parseVocab returns BERT's tokenizer of a vocab.txt, one token a line.
func parseVocab(data []byte, c *config) (*Tokenizer, error) {
	vocab := map[string]int32{}
	for i, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		vocab[strings.TrimSuffix(line, "\r")] = int32(i)
	}
	var added []addedToken
	ids := map[string]int32{}
	for _, token := range []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"} {
		id, ok := vocab[token]
		if !ok && (token == "[CLS]" || token == "[SEP]" || token == "[UNK]") {
			return nil, fmt.Errorf("vocabulary: %s is missing", token)
		}
		if ids[token] = id; ok {
			added = append(added, addedToken{ID: id, Content: token, Special: true})
		}
	}
	return assemble(object{
		"added_tokens":   added,
		"normalizer":     object{"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": flag(c.Chinese, true), "strip_accents": c.StripAccents, "lowercase": flag(c.Lowercase, true)},
		"pre_tokenizer":  object{"type": "BertPreTokenizer"},
		"post_processor": object{"type": "BertProcessing", "sep": []any{"[SEP]", ids["[SEP]"]}, "cls": []any{"[CLS]", ids["[CLS]"]}},
		"decoder":        object{"type": "WordPiece", "prefix": "##", "cleanup": true},
		"model": object{"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
			"max_input_chars_per_word": 100, "vocab": vocab},
	})
}

// parseMerges returns the byte-level BPE of a vocab.json and a merges.txt, by GPT-2's or
// RoBERTa's rules. prefix puts a space before each text.
func parseMerges(vocab, merges []byte, roberta, prefix bool) (*Tokenizer, error) {
	var ids map[string]int32
	if err := json.Unmarshal(vocab, &ids); err != nil {
		return nil, fmt.Errorf("vocabulary: %w", err)
	}
	pairs := [][]string{}
	for i, line := range strings.Split(string(merges), "\n") {
		line = strings.TrimSuffix(line, "\r")
		if line == "" || strings.HasPrefix(line, "#version") {
			continue
		}
		a, b, ok := strings.Cut(line, " ")
		if !ok {
			return nil, fmt.Errorf("merges: line %d is %q, not a pair", i+1, line)
		}
		pairs = append(pairs, []string{a, b})
	}
	var added []addedToken
	special := []string{"<|endoftext|>"}
	if roberta {
		special = []string{"<s>", "<pad>", "</s>", "<unk>", "<mask>"}
	}
	for _, token := range special {
		if id, ok := ids[token]; ok {
			added = append(added, addedToken{ID: id, Content: token, Special: true, LStrip: token == "<mask>"})
		}
	}
	level := object{"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": true}
	post := object{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true}
	if roberta {
		post = object{"type": "RobertaProcessing", "sep": []any{"</s>", ids["</s>"]}, "cls": []any{"<s>", ids["<s>"]}, "trim_offsets": true, "add_prefix_space": prefix}
	}
	return assemble(object{
		"added_tokens": added, "pre_tokenizer": level, "post_processor": post, "decoder": level,
		"model": object{"type": "BPE", "vocab": ids, "merges": pairs},
	})
}

// assemble returns the tokenizer of the parts of a tokenizer.json.
func assemble(parts object) (*Tokenizer, error) {
	parts["version"], parts["truncation"], parts["padding"] = "1.0", nil, nil
	for _, name := range []string{"normalizer", "pre_tokenizer", "post_processor", "decoder"} {
		if _, ok := parts[name]; !ok {
			parts[name] = nil
		}
	}
	data, err := json.Marshal(parts)
	if err != nil {
		return nil, err
	}
	return Parse(data)
}
