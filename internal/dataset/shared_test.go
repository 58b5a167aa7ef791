package dataset

import (
	"fmt"
	"io"
	"testing"
)

// The real files have the sizes and counts in their READMEs.

func TestRealMNISTHasItsSizes(t *testing.T) {
	for name, want := range map[string]string{
		"train-images-idx3-ubyte.gz": "[60000 28 28]", "train-labels-idx1-ubyte.gz": "[60000]",
		"t10k-images-idx3-ubyte.gz": "[10000 28 28]", "t10k-labels-idx1-ubyte.gz": "[10000]",
	} {
		a, err := ReadFile(shared(t, "mnist", name), ReadIDX)
		if err != nil || fmt.Sprint(a.Shape) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRealCIFAR10HasItsSizes(t *testing.T) {
	for _, sheet := range []int{0, 50} {
		m, err := ReadFile(shared(t, "cifar10", fmt.Sprintf("cifar10_batch_%d.png", sheet)), ReadSheet)
		if err != nil || m.Len() != 1000 {
			t.Errorf("sheet %d: %v", sheet, err)
		}
	}
}

func TestRealPathfinderHasItsSizes(t *testing.T) {
	for name, want := range map[string]struct {
		n     int
		share float64
	}{"hard_contour14_4000.bin.gz": {4000, 0.5015}, "easy_contour6_2000.bin.gz": {2000, 0.5195}} {
		m, err := ReadFile(shared(t, "pathfinder32", name), ReadImageRecords(32, 32, 2))
		if err != nil {
			t.Fatal(err)
		}
		sum := 0
		for _, l := range m.Labels {
			sum += int(l)
		}
		if m.Len() != want.n || float64(sum)/float64(m.Len()) != want.share {
			t.Errorf("%s: %d images, %d positive", name, m.Len(), sum)
		}
	}
}

func TestRealReviewsHaveTheirCounts(t *testing.T) {
	list, err := ReadFile(shared(t, "imdb", "imdb_train_10000.tsv.gz"), ReadReviews)
	if err != nil {
		t.Fatal(err)
	}
	films := map[string]int{}
	bytes, longest, pairs := 0, 0, 0
	for _, r := range list {
		bytes += len(r.Text)
		longest = max(longest, len(r.Text))
		pairs += films[r.Film]
		films[r.Film]++
	}
	if len(list) != 10000 || len(films) != 2944 || pairs != 27913 || longest != 13704 || (bytes+5000)/10000 != 1322 {
		t.Errorf("%d reviews of %d films, %d pairs, longest %d, mean %d", len(list), len(films), pairs, longest, (bytes+5000)/10000)
	}
}

func TestRealListOpsHasItsRows(t *testing.T) {
	for name, n := range map[string]int{"train": 1000, "val": 500, "test": 500} {
		list, err := ReadFile(shared(t, "listops", "basic_"+name+".tsv.gz"), ReadExpressions)
		if err != nil || len(list) != n {
			t.Errorf("%s: %d rows, %v", name, len(list), err)
		}
	}
}

func TestRealGenomesHaveTheirLengths(t *testing.T) {
	for name, want := range map[string][2]int{
		"GCF_000005845.2_ASM584v2_genomic.fna.gz": {1, 4641652},
		"C.elegans.fa.gz":                         {7, 1002861},
		"D.melanogaster.fa.gz":                    {7, 1375477},
		"A.thaliana.fa.gz":                        {7, 1196674},
		"lambda_virus.fa":                         {1, 48502},
	} {
		list, err := ReadFile(shared(t, "genome", name), ReadFASTA)
		n := 0
		for _, r := range list {
			n += len(r.Bases)
		}
		if err != nil || len(list) != want[0] || n != want[1] {
			t.Errorf("%s: %d records of %d bases, %v", name, len(list), n, err)
		}
	}
}

func TestRealTextsHaveTheirLengths(t *testing.T) {
	b, err := ReadFile(shared(t, "enwik8", "enwik8-first-4000000.gz"), io.ReadAll)
	if err != nil || len(b) != 4000000 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}
