package reproduce

import "github.com/farfield-ml/farfield/internal/report"

var linearLSH = Row{
	Name:   "linear-lsh",
	Doc:    "MNIST and CIFAR-10 drawn level by level with LSH, softmax and linear attention, by small models of as many updates: bits per dimension and images a second",
	Source: "Katharopoulos et al. 2020, Transformers are RNNs, arXiv 2006.16236, tables 1 and 2",
	Claim:  "MNIST: softmax 0.621 bits, LSH-1 0.745, LSH-4 0.676, linear 0.644; CIFAR-10: softmax 3.47 bits, LSH-1 3.39, LSH-4 3.51, linear 3.40; LSH is the slowest to draw but for softmax without a cache",
	Lacks:  "models of the published size, which linear-table1 and linear-table2 train",
	Seeds:  true, Tunes: true,
	pieces: lshLessons.pieces, outcome: lshLessons.outcome(lshFindings),
}

// lshTables are the tables of linear-table1 and linear-table2 with small models in every budget, since
// a step of LSH sorts its buckets anew: few images are drawn.
func lshTables() []drawnTable {
	digits, photos := mnistDrawn, cifarDrawn
	digits.Steps, photos.Steps = [3]int{1500, 7500, 0}, [3]int{300, 1200, 0}
	list := []drawnTable{digits, photos}
	for i := range list {
		d := &list[i]
		d.Sheet, d.Recompute, d.Neighbours = 2, false, 0
		d.Methods = []method{softmax, linear, d.lsh(1), d.lsh(4)}
	}
	return list
}

var lshLessons = lessons(func(o *Options) (list []*lesson, _ error) {
	small := *o
	small.Budget = Quick
	for _, d := range lshTables() {
		d.Steps[Quick] = pick(o.Budget, d.Steps[0], d.Steps[1], 10*d.Steps[1])
		one, err := d.lessons()(&small)
		if err != nil {
			return nil, err
		}
		list = append(list, one...)
	}
	return list, nil
})

// lshFindings make the two tables of the page.
func lshFindings(out *Outcome, list []scored) error {
	tables := out.Tables
	out.Tables = nil
	var first []report.Table
	for i := range list {
		for _, d := range lshTables() {
			if d.Pixels.Name != list[i].Name {
				continue
			}
			if err := d.findings(out, list[i:i+1]); err != nil {
				return err
			}
			t := out.Tables[0]
			t.Title = list[i].Name + ": " + t.Title
			first, out.Tables = append(first, t), nil
		}
	}
	out.Tables = append(first, tables...)
	return nil
}
