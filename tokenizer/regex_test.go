package tokenizer

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPatternsMatchAsTheReference compares the matches of patterns with the matches of tokenizers 0.23.3.
func TestPatternsMatchAsTheReference(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, text string
		want          []string
	}{
		{`^a+`, "aa a\naa", []string{"aa", "aa"}},
		{` +$`, "a  \nb ", []string{"  ", " "}},
		{`[a$^]+`, "x$a^\n", []string{"$a^"}},
		{`\[\s+`, "[ [", []string{"[ "}},
		{`[\]\s]+`, "a] ]b", []string{"] ]"}},
		{`[]a]+`, "b]a", []string{"]a"}},
		{`[^]a]+`, "b]a", []string{"b"}},
		{`\w+`, "d²", []string{"d²"}},
		{`[\w]+`, "d²", []string{"d"}},
		{`[^\w\s]+`, "👍² d", []string{"👍²"}},
		{`\D+`, "a٣b", []string{"a", "b"}},
		{`[^\D]+`, "a٣b", []string{"٣"}},
		{`\p{^L}+`, "a1 b", []string{"1 "}},
		{`(?i:'s|k)`, "'S'ſK", []string{"'S", "'ſ", "K"}},
		{`\d{1,3}(?=(?:\d{3})*\b)`, "1234567 12 a123456b 9", []string{"1", "234", "567", "12", "9"}},
		{`\b\w`, "ab cd-éf ²a", []string{"a", "c", "é", "²"}},
		{`\B\w+`, "ab cd _x é", []string{"b", "d", "x"}},
		{`\w+\b.`, "don't stop٣!", []string{"don'", "t ", "stop٣!"}},
		{`(?:ab)+c`, "ababc abab abc", []string{"ababc", "abc"}},
		{`(?:a.){2,}`, "axayaz ab", []string{"axayaz"}},
		{`\bfoo\b`, "foo foobar (foo) foo_ fooé foo\u0301", []string{"foo", "foo"}},
		{`a(?:é\d)*b?`, "aé1é2b aé1é", []string{"aé1é2b", "aé1"}},
		{` ?\b[A-Z]+\b`, "AB cD EF", []string{"AB", " EF"}},
		{`\b²|x\b`, "² ²a x² x", []string{"²", "²", "x"}},
	} {
		p, err := newPattern(c.pattern)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		var got []string
		for m := range p.all([]byte(c.text)) {
			got = append(got, c.text[m.start:m.end])
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s in %q: matches %q, want %q", c.pattern, c.text, got, c.want)
		}
	}
}

// TestPatternsTakeLinearTime counts the steps of searches that take quadratic time, or time without end, unless
// results are recorded. Matches are compared with package regexp, which has no lookahead.
func TestPatternsTakeLinearTime(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{
		`(?:a|aa){1,40}b`, `a*a*a*a*a*a*a*a*b`, `(?:a?){30}a{30}b`, `a+a{2,}a{0,9}a+b|a{5,}c`, `(?:é|a|aé){0,30}éb`,
		`(?!a*(?!a*(?!a*(?!a*(?!a*c))))b)a+b`, `a(?=(?:a|aa){1,40}b)a*a*c`,
		`a.*b|a`, `a(?=.*b)`, `a(?=.+b)|a`, `a(?!.*b)|a`, `a(?=(?:a|aa){1,9}.*.*c)|é`, `aa.*(?:b|é)c|a(?:.*c)?`, `a[^c]*b|a`,
		`a(?:aa)*b`, `a{1,3}(?=(?:aaa)*\b)`, `(?:ab)+c|a`, `(?:aé){2,}c`, `(?:aaa)*(?:aa)*a*(?:aaaa)*b`, `a(?!(?:aa)*(?:a.)*c)|b`,
	} {
		p, err := newPattern(pattern)
		if err != nil {
			t.Fatalf("%s: %v", pattern, err)
		}
		reference, _ := regexp.Compile(pattern)
		for _, text := range []string{
			strings.Repeat("a", 500), strings.Repeat("a", 500) + "b", strings.Repeat("a", 500) + "éb", strings.Repeat("a", 500) + "c",
			strings.Repeat("a", 500) + "ab", strings.Repeat("ab", 250) + "aaa", strings.Repeat("aaé", 170), "ab" + strings.Repeat("aac", 170),
		} {
			s := &search{choices: p.choices, free: freeSteps * (len(text) + 1)}
			all := s.free
			var got []span
			for m := range p.search(s, []byte(text)) {
				got = append(got, m)
			}
			if most := (freeSteps + 16*(p.choices+1)) * (len(text) + 1); all-s.free > most {
				t.Errorf("%s in %.5q… of %d bytes: %d steps, at most %d are linear", pattern, text, len(text), all-s.free, most)
			}
			// Without free steps the records decide from the beginning on.
			if recorded := slices.Collect(p.search(&search{choices: p.choices}, []byte(text))); !slices.Equal(recorded, got) {
				t.Errorf("%s in %.5q…: matches with records are %v, without %v", pattern, text, recorded, got)
			}
			if reference == nil {
				continue
			}
			var want []span
			for _, at := range reference.FindAllStringIndex(text, -1) {
				want = append(want, span{at[0], at[1]})
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s in %.5q…: matches %v, want %v", pattern, text, got, want)
			}
		}
	}
}

func TestPatternsOfAnotherMeaningAreRefused(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		`[[:alpha:]]+`: `"[:" in a class`,
		`[a-z&&[^b]]`:  `"&&" in a class`,
		`\Qa\E`:        `\Q is not read`,
		`a{,2}b`:       `"{," is not read`,
		`a(?m:.)`:      `"(?m:" is not read`,
		`x*`:           "matches the empty text",
		`(?=[A-Z])`:    "matches the empty text",
	} {
		if _, err := newPattern(pattern); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", pattern, err, want)
		}
	}
}

func TestCleaningRemovesZeroBytes(t *testing.T) {
	t.Parallel()
	v, err := parseVocab([]byte("[PAD]\n[UNK]\n[CLS]\n[SEP]\nab\n"), new(config))
	if err != nil {
		t.Fatal(err)
	}
	if ids := v.AppendIDs(nil, "a\x00b\x00", true); !slices.Equal(ids, []int32{4}) {
		t.Errorf("ids are %v, want [4]", ids)
	}
}

func TestSuffixesOfByteLevelBPEAreRefused(t *testing.T) {
	t.Parallel()
	_, err := Parse([]byte(`{"pre_tokenizer":{"type":"ByteLevel"},"model":{"type":"BPE","end_of_word_suffix":"</w>","vocab":{"a":0,"a</w>":1},"merges":[]}}`))
	if err == nil || !strings.Contains(err.Error(), `end_of_word_suffix "</w>"`) {
		t.Errorf("a suffix behind ByteLevel: %v", err)
	}
}

func TestComponentsBeyondTheirBoundsAreRefused(t *testing.T) {
	t.Parallel()
	const double = `{"type":"Replace","pattern":{"String":"a"},"content":"aa"}`
	sequence := func(name, member, step string, n int) string {
		return `"` + name + `":{"type":"Sequence","` + member + `":[` + step + strings.Repeat(","+step, n-1) + `]}`
	}
	nested := func(name, member string, n int) string {
		return `"` + name + `":` + strings.Repeat(`{"type":"Sequence","`+member+`":[`, n) + strings.Repeat("]}", n)
	}
	template := func(single, pair string) string {
		return `"post_processor":{"type":"TemplateProcessing","special_tokens":{},"single":[` + single + `],"pair":[` + pair + `]}`
	}
	const a, b = `{"Sequence":{"id":"A","type_id":0}}`, `{"Sequence":{"id":"B","type_id":1}}`
	for _, c := range []struct{ part, want string }{
		{sequence("normalizer", "normalizers", double, 12), ""},
		{sequence("normalizer", "normalizers", double, 13), "with Replace a byte may become 8192, at most 4096"},
		{sequence("normalizer", "normalizers", `{"type":"Prepend","prepend":"aaa"}`, 7), "with Prepend a byte may become 16384"},
		{sequence("pre_tokenizer", "pretokenizers", `{"type":"Metaspace","replacement":"▁"},{"type":"Punctuation"}`, 7), "with Metaspace a byte may become 16384"},
		{sequence("decoder", "decoders", double, 13), "decoder: with Replace a byte may become 8192"},
		{nested("normalizer", "normalizers", 8), ""},
		{nested("normalizer", "normalizers", 9), "normalizer: 9 Sequences hold one another, at most 8"},
		{nested("pre_tokenizer", "pretokenizers", 9), "pre_tokenizer: 9 Sequences"},
		{nested("post_processor", "processors", 9), "post_processor: 9 Sequences"},
		{nested("decoder", "decoders", 9), "decoder: 9 Sequences"},
		{`"decoder":{"type":"Strip","start":9000000000000000000,"stop":0}`, `content is "", not a character`},
		{`"decoder":{"type":"Strip","content":"a","start":-1,"stop":0}`, "start is -1 and stop 0"},
		{`"decoder":{"type":"Metaspace","prepend_scheme":"always"}`, `replacement is "", not a character`},
		{`"decoder":{"type":"BPEDecoder"}`, "suffix is missing"},
		{template(a, a+","+b), ""},
		{template(a, ""), ""},
		{template(a, a), "pair: needs sequence A once, and then B once"},
		{template(a, b+","+a), "pair: needs sequence A once, and then B once"},
		{template(b, a+","+b), "single: needs sequence A once, and no B"},
	} {
		_, err := Parse([]byte(`{` + c.part + `,"model":{"type":"WordLevel","unk_token":"a","vocab":{"a":0}}}`))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.part, err, c.want)
		}
	}
}
