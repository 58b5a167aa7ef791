package task

import "github.com/farfield-ml/farfield/rng"

// splitter divides items of the user's own data among training, validation and test set.
type splitter struct {
	seed uint64
	// isDrawn draws each item by itself, with probabilities 0.8, 0.1 and 0.1, as runs of earlier
	// versions did.
	isDrawn bool
}

// split returns the split of each item. A tenth of each class is in the test set and a tenth in the
// validation set; numbers are rounded so that this also holds for all classes together. A class
// with two items or more has one in the test set, and every class has one in the training set. The
// seed decides which items these are.
func (d splitter) split(classes []int32) []Split {
	splits := make([]Split, len(classes))
	key := rng.New(d.seed).Fold(3)
	if d.isDrawn {
		for i := range splits {
			switch key.Intn(uint64(i), 10) {
			case 0:
				splits[i] = Test
			case 1:
				splits[i] = Valid
			}
		}
		return splits
	}
	var members [][]int
	for i, c := range classes {
		for int(c) >= len(members) {
			members = append(members, nil)
		}
		members[c] = append(members[c], i)
	}
	before := 0 // items of the classes before
	for c, list := range members {
		n := len(list)
		tenth := (before+n+5)/10 - (before+5)/10
		before += n
		test := tenth
		if n > 1 {
			test = max(test, 1)
		}
		test = max(min(test, n-1), 0)
		valid := max(min(tenth, n-1-test), 0)
		for k := range test + valid {
			at := list[key.Fold(uint64(c)).Permute(k, n)]
			if splits[at] = Valid; k < test {
				splits[at] = Test
			}
		}
	}
	return splits
}
