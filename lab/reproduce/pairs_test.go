package reproduce

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/task"
)

// Dates are different, and each is written in both languages.
func TestTranslatedDates(t *testing.T) {
	seen := map[string]bool{}
	forms := map[string]int{}
	for _, p := range translatedDates(500) {
		source, target := string(p.Source), string(p.Target)
		if seen[target] {
			t.Errorf("%s is there twice", target)
		}
		seen[target] = true
		day, rest, _ := strings.Cut(target, ". ")
		if year := rest[len(rest)-4:]; !strings.Contains(source, day) || !strings.HasSuffix(source, year) {
			t.Errorf("%q is written as %q", source, target)
		}
		switch {
		case strings.HasPrefix(source, "the "):
			forms["of"]++
		case source[0] <= '9':
			forms["day first"]++
		case strings.ContainsAny(source[:4], " "):
			forms["short"]++
		default:
			forms["long"]++
		}
	}
	if len(forms) != 4 {
		t.Errorf("forms %v", forms)
	}
	for _, c := range [][2]string{{"the 1st of", "1. "}, {"the 11th of", "11. "}, {"the 22nd of", "22. "}, {"the 3rd of", "3. "}} {
		found := false
		for _, p := range translatedDates(4000) {
			found = found || strings.HasPrefix(string(p.Source), c[0]) && strings.HasPrefix(string(p.Target), c[1])
		}
		if !found {
			t.Errorf("no date begins with %q", c[0])
		}
	}
}

// Questions stand before what was said in the turns that they are about.
func TestMeetingAnswers(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "qmsum"), 0o777); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		for _, name := range []string{"val.jsonl", "test.jsonl"} {
			if err := os.WriteFile(filepath.Join(dir, "qmsum", name), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	const meeting = `{"meeting_transcripts":[{"content":"One."},{"content":"Two."},{"content":"Three."}],` +
		`"specific_query_list":[{"query":"What?","answer":"Two and three.","relevant_text_span":[["1","9"]]}]}` + "\n"
	write(meeting)
	list, err := meetingAnswers(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || string(list[0].Source) != "What?\nTwo. Three." || string(list[0].Target) != "Two and three." {
		t.Errorf("%q", list)
	}
	for span, want := range map[string]string{`["1"]`: "it has 1 ends", `["1","x"]`: "two numbers of turns", `["2","1"]`: "two numbers of turns"} {
		write(strings.Replace(meeting, `["1","9"]`, span, 1))
		if _, err := meetingAnswers(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v", span, err)
		}
	}
}

// A row of few updates writes targets and compares them.
func TestPairsAreLearned(t *testing.T) {
	all := pairLessons
	row := pairsRow
	short := lessons(func(o *Options) ([]*lesson, error) {
		list, err := all(o)
		if err != nil {
			return nil, err
		}
		l := list[0]
		setUpdates(&l.Config, 2)
		l.Config.Batch, l.Config.EvalSamples, l.Config.FinalSamples = 2, 2, 2
		l.Methods = l.Methods[:1]
		l.open = func(string) (task.Source, error) {
			return openTextPairs(translatedDates(40), l.Config.TaskSet)
		}
		return list[:1], nil
	})
	row.pieces, row.outcome = short.pieces, short.outcome(pairFindings)
	out, err := row.Run(t.Context(), &Options{Out: t.TempDir(), Data: t.TempDir()}, Observer{})
	if err != nil {
		t.Fatal(err)
	}
	if rows := out.Tables[0].Rows; len(rows) != 3 || rows[0][1] != softmax.Label || !strings.Contains(rows[2][1], "lead-3") {
		t.Errorf("table %v", rows)
	}
}
