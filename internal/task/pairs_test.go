package task

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// A sample is source, separator, target and end; only target and end have labels. What is too long loses
// its end, and a target that is cut is not ended.
func TestPairsLabelTheTargetAlone(t *testing.T) {
	rows := strings.Repeat("{\"question\": \"abcdefgh\", \"answer\": \"xyz\"}\n{\"question\": \"ab\", \"answer\": \"vwxyz\"}\n", 20)
	dir := write(t, map[string]string{"p.jsonl": rows, "p.tsv": "answer\tquestion\nxyz\tabcdefgh\n"})
	src := openSource(t, PairsName, Options{}, "data", dir+"/p.jsonl", "source", "question", "target", "answer", "length", "10", "target_length", "4")
	holds(t, src)
	spec := src.Spec()
	if spec.Count != [3]int{32, 4, 4} {
		t.Errorf("samples by split: %v", spec.Count)
	}
	seen := map[string]bool{}
	for i := range spec.Count[Train] {
		s := take(t, src, Train, i)
		var text, target []byte
		for p, x := range s.Tokens {
			text = append(text, byte(x))
			if y := s.Labels[p]; y >= 0 {
				target = append(target, byte(y))
				if p+1 < len(s.Tokens) && y != s.Tokens[p+1] {
					t.Fatalf("position %d says %d, the next token is %d", p, y, s.Tokens[p+1])
				}
			}
		}
		seen[string(text)+"|"+string(target)] = true
		if n := src.(*TextPairs).SampleLength(Train, i); n != len(s.Tokens) && n != len(s.Tokens)+1 {
			t.Errorf("sample %d has %d positions, its length is told as %d", i, len(s.Tokens), n)
		}
	}
	if want := map[string]bool{"abcde\x1fxyz|xyz\x1e": true, "ab\x1fvwx|vwxy": true}; len(seen) != 2 || !seen["abcde\x1fxyz|xyz\x1e"] || !seen["ab\x1fvwx|vwxy"] {
		t.Errorf("samples are %v, want %v", seen, want)
	}
	if cut, all := src.(TruncationReporter).CountTruncated(); cut != 40 || all != 40 {
		t.Errorf("%d of %d are cut", cut, all)
	}
	w, err := NewPairWriter(map[string]string{"length": "10", "target_length": "4", "data": "x"})
	if err != nil {
		t.Fatal(err)
	}
	prompt, cut, err := w.Prompt([]byte("abcdefgh"))
	if s := take(t, src, Train, 0); err != nil || !cut || !slices.Equal(prompt, []int32{'a', 'b', 'c', 'd', 'e', pairSeparator}) {
		t.Errorf("the prompt is %v, %v; a sample has %v", prompt, err, s.Tokens)
	}
	all, err := Open(PairsName, Options{ScoreOnly: true, Settings: map[string]string{"data": dir + "/p.tsv", "source": "question", "target": "answer"}})
	if err != nil || all.(*TextPairs).TestOnly().Spec().Count[Test] != 1 {
		t.Errorf("a table: %v", err)
	}
	// Targets of two kinds: after "after two" bytes their loss is small, and more than nothing.
	list, err := src.(*TextPairs).Baselines(0)
	if err != nil || len(list) != 3 || !(list[0].Score > list[2].Score && list[2].Score > 0) || list[0].Judged != 4 || list[0].Learned != 32 {
		t.Errorf("baselines are %+v, %v", list, err)
	}
}

func TestPairsRefuseWhatTheyCannotTell(t *testing.T) {
	for want, file := range map[string]string{
		"row 1 below the header: target: the text is empty":               "source,target\na,\n",
		"row 2 below the header: source: byte 1 is 0x1f, which separates": "source,target\na,b\nc\x1f,d\n",
		"target":                            "source,answer\na,b\n",
		"rows: there is none to learn from": "source,target\n",
	} {
		dir := write(t, map[string]string{"p.csv": file})
		if _, err := Open(PairsName, Options{Settings: map[string]string{"data": dir + "/p.csv"}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
	for _, set := range []map[string]string{{"target_length": "0"}, {"length": "100", "target_length": "99"}, {"length": "x"}, {"other": "1"}} {
		if _, err := NewPairWriter(set); err == nil {
			t.Errorf("%v is not refused", set)
		}
	}
	if err := CheckAskable(PairsName); err == nil || !strings.Contains(err.Error(), "farfield predict") {
		t.Errorf("error is %v", err)
	}
}

// Scores of texts whose common words are counted by hand.
func TestRougeIsCountedByHand(t *testing.T) {
	var s TextScore
	// Common words: police, killed, the; pairs: none but "the"... counted below.
	s.Add([]byte("Police killed the gunman."), []byte("police ended the gunman"))
	// 3 of 4 and 4 words; "the gunman" of 3 and 3 pairs; police the gunman of 4 and 4.
	if s.Exact != 0 || math.Abs(s.Rouge1-0.75) > 1e-15 || math.Abs(s.Rouge2-1./3) > 1e-15 || math.Abs(s.RougeL-0.75) > 1e-15 {
		t.Errorf("%+v", s)
	}
	s.Add([]byte("12 May 2020\n"), []byte("12 May 2020"))
	if s.Texts != 2 || s.Exact != 0.5 || math.Abs(s.Rouge1-0.875) > 1e-15 {
		t.Errorf("%+v", s)
	}
	var other TextScore
	other.Add([]byte("the the the"), []byte("the cat the mat")) // the counts twice
	other.Add(nil, []byte("x"))
	if math.Abs(2*other.Rouge1-4./7) > 1e-15 || other.Rouge2 != 0 || math.Abs(2*other.RougeL-4./7) > 1e-15 {
		t.Errorf("%+v", other)
	}
	for text, want := range map[string]string{
		"One. Two! Three? Four.": "One. Two! Three?", "A 3.5 b.\nC\n\nD. E": "A 3.5 b.\nC\n\nD.", "one": "one",
	} {
		if got := firstSentences([]byte(text), 3); string(got) != want {
			t.Errorf("of %q the first sentences are %q", text, got)
		}
	}
}

// The longest common subsequence is the longest of all subsequences.
func TestRougeLIsTheLongestSubsequence(t *testing.T) {
	words := strings.Fields("a b c a b")
	for code := range 3 * 3 * 3 * 3 {
		var other []string
		for n := code; len(other) < 4; n /= 3 {
			other = append(other, []string{"a", "b", "c"}[n%3])
		}
		most := 0
		for set := range 1 << len(words) {
			var chosen []string
			for i, w := range words {
				if set>>i&1 == 1 {
					chosen = append(chosen, w)
				}
			}
			rest := other
			for _, w := range chosen {
				at := slices.Index(rest, w)
				if at < 0 {
					chosen = nil
					break
				}
				rest = rest[at+1:]
			}
			most = max(most, len(chosen))
		}
		if got := rougeL(words, other); math.Abs(got-2*float64(most)/9) > 1e-15 {
			t.Errorf("%v: %v, want %d common words", other, got, most)
		}
	}
}
