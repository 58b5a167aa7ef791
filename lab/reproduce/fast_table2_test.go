package reproduce

import "testing"

// Steps have the published batches, in passes that fit in memory.
func TestTable2StepsAreWhole(t *testing.T) {
	for b := Quick; b <= Full; b++ {
		for i, c := range table2Configs(&Options{Budget: b}) {
			task := &lraTasks[i]
			if c.Pass*c.Passes != task.Batch {
				t.Errorf("%v %s: %d passes of %d, the batch is %d", b, c.Task, c.Passes, c.Pass, task.Batch)
			}
			if b == Full && c.Passes != 1 {
				t.Errorf("%s: the full budget has %d passes", c.Task, c.Passes)
			}
			if b == Quick && c.Pass*task.Parts*c.N > 8000 {
				t.Errorf("%s: a quick pass has %d sequences of %d tokens", c.Task, c.Pass*task.Parts, c.N)
			}
		}
	}
}
