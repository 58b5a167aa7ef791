package task

import (
	"bytes"
	"strings"
	"unicode"
)

// TextScore compares texts with their references: by the share of texts that equal their reference,
// and by means of ROUGE F₁ (Lin 2004, ROUGE: A Package for Automatic Evaluation of Summaries).
// Words are runs of letters and digits in lower case, without stemming.
type TextScore struct {
	Name   string  `json:"name"`
	Exact  float64 `json:"exact_match"`
	Rouge1 float64 `json:"rouge_1"` // common words
	Rouge2 float64 `json:"rouge_2"` // common pairs of words
	RougeL float64 `json:"rouge_l"` // longest common subsequence of words
	Texts  int     `json:"texts"`
}

// Add adds the comparison of text with its reference to the means.
func (s *TextScore) Add(text, reference []byte) {
	one := TextScore{}
	if bytes.Equal(bytes.TrimSpace(text), bytes.TrimSpace(reference)) {
		one.Exact = 1
	}
	a, b := rougeWords(text), rougeWords(reference)
	one.Rouge1, one.Rouge2, one.RougeL = rougeN(a, b, 1), rougeN(a, b, 2), rougeL(a, b)
	s.Texts++
	n := float64(s.Texts)
	for _, x := range [][2]*float64{{&s.Exact, &one.Exact}, {&s.Rouge1, &one.Rouge1}, {&s.Rouge2, &one.Rouge2}, {&s.RougeL, &one.RougeL}} {
		*x[0] += (*x[1] - *x[0]) / n
	}
}

// rougeWords returns the words of a text.
func rougeWords(text []byte) []string {
	return strings.FieldsFunc(strings.ToLower(string(text)), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) })
}

// f1 returns the harmonic mean of common/a and common/b, 0 if nothing is common.
func f1(common, a, b int) float64 {
	if common == 0 {
		return 0
	}
	return 2 * float64(common) / float64(a+b)
}

// rougeN returns F₁ of the runs of n words that a and b have in common, each as often as in both.
func rougeN(a, b []string, n int) float64 {
	counts := map[string]int{}
	for i := range len(b) - n + 1 {
		counts[strings.Join(b[i:i+n], " ")]++
	}
	common := 0
	for i := range len(a) - n + 1 {
		if gram := strings.Join(a[i:i+n], " "); counts[gram] > 0 {
			counts[gram]--
			common++
		}
	}
	return f1(common, len(a)-n+1, len(b)-n+1)
}

// rougeL returns F₁ of the longest common subsequence of a and b.
func rougeL(a, b []string) float64 {
	row := make([]int, len(b)+1) // lengths for the words of a so far and each beginning of b
	for _, word := range a {
		before := 0 // the length without word and without b[j]
		for j := range b {
			above := row[j+1]
			if word == b[j] {
				row[j+1] = before + 1
			} else {
				row[j+1] = max(above, row[j])
			}
			before = above
		}
	}
	return f1(row[len(b)], len(a), len(b))
}

// firstSentences returns the first n sentences of a text. A sentence ends after a point, an exclamation
// or a question mark that white space follows, and at a line break.
func firstSentences(text []byte, n int) []byte {
	blank := true // since the last end
	for i, b := range text {
		ends := b == '\n' && !blank
		if b == '.' || b == '!' || b == '?' {
			ends = i+1 < len(text) && (text[i+1] == ' ' || text[i+1] == '\t' || text[i+1] == '\r')
		}
		blank = ends || blank && (b == ' ' || b == '\t' || b == '\r' || b == '\n')
		if ends {
			if n--; n == 0 {
				return text[:i+1]
			}
		}
	}
	return text
}

// CopyBaselines compares the sources of pairs with their targets: whole sources, and their first
// three sentences. each calls its argument with every pair.
func CopyBaselines(each func(f func(p TextPair))) []TextScore {
	whole, lead := TextScore{Name: "copy of the source"}, TextScore{Name: "lead-3, its first three sentences"}
	each(func(p TextPair) {
		whole.Add(p.Source, p.Target)
		lead.Add(firstSentences(p.Source, 3), p.Target)
	})
	return []TextScore{whole, lead}
}
