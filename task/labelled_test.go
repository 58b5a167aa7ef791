package task

import (
	"slices"
	"testing"
)

// TestLabelsFollowOneRule gives labels that are names, names in another case, or numbers, and
// labels that only a rule for each label could read.
func TestLabelsFollowOneRule(t *testing.T) {
	stars, moods := []string{"1", "2", "3", "4", "5"}, []string{"bad", "good", "fair"}
	for _, c := range []struct {
		labels, names []string
		want          []int32
		err           string
	}{
		{labels: []string{"1", "2", "5"}, names: stars, want: []int32{0, 1, 4}},
		{labels: []string{"1", "2", "0"}, names: stars, want: []int32{1, 2, 0}},
		{labels: []string{"0", "1", "2", "3", "4"}, names: stars, want: []int32{0, 1, 2, 3, 4}},
		{labels: []string{"Good", "bad"}, names: moods, want: []int32{1, 0}},
		{labels: []string{"2", "0"}, names: moods, want: []int32{2, 0}},
		{labels: []string{"a", "A"}, names: []string{"A", "a"}, want: []int32{1, 0}},
		{labels: []string{"bad", "2"}, names: moods,
			err: `label: "2" is no class of the model, ["bad" "good" "fair"], and "bad" no number below 3; all labels are names, or all are numbers`},
		{labels: []string{"0", "5"}, names: stars,
			err: `label: "0" is no class of the model, ["1" "2" "3" "4" "5"], and "5" no number below 5; all labels are names, or all are numbers`},
		{labels: []string{"bad", "worse"}, names: moods,
			err: `label: "worse" is no class of the model, ["bad" "good" "fair"], nor a number below 3`},
		{labels: []string{"GOOD", "bad", "good"}, names: moods, err: `label: "GOOD" and "good" are both class 1 of the model, "good"`},
		{labels: []string{"0", "+1", "01"}, names: moods, err: `label: "+1" and "01" are both class 1 of the model, "good"`},
	} {
		got, err := matchClasses(c.labels, c.names)
		message := ""
		if err != nil {
			message = err.Error()
		}
		if message != c.err || !slices.Equal(got, c.want) {
			t.Errorf("%q of %q: %v, %v; want %v, %s", c.labels, c.names, got, err, c.want, c.err)
		}
	}
}
