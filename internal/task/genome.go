package task

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/farfield-ml/farfield/internal/dataset"
)

// Genome classifies the species of a window of DNA: E. coli, C. elegans, D. melanogaster or A.
// thaliana, with equal probability. Records (chromosomes) shorter than a window are ignored.
// With three records or more, the second longest is the test set, the third the validation
// set, all others the training set. With fewer, each record is divided 8:1:1 in that order of
// training, validation and test. Counting k-mers solves the task.
type Genome struct {
	name    string
	classes []string
	length  int // number of bases in a window
	seed    uint64
	regions [3][][][]byte // bases by split, species and record
	ignored ignoredFiles  // of the folder of the data
}

// genomes are the file names of the species.
var genomes = []string{"GCF_000005845.2_ASM584v2_genomic.fna", "C.elegans.fa", "D.melanogaster.fa", "A.thaliana.fa"}

var species = []string{"E. coli", "C. elegans", "D. melanogaster", "A. thaliana"}

var genomeSettings = []Setting{{"length", "1024", "bases of a window"}}

// askGenome returns the question for the species of a record's first bases.
func askGenome(o *settingsReader, _ ModelInfo) (*Question, error) {
	return askRecords(species, o.int("length"), baseTokens, 6)
}

func openGenome(o *settingsReader) (Source, error) {
	return OpenGenome(filepath.Join(o.Folder, "genome"), o.int("length"), o.Seed)
}

// OpenGenome reads one FASTA file per species in a folder, plain or gzip. It returns an error
// if a file is missing or malformed, or a split is shorter than a window.
func OpenGenome(folder string, length int, seed uint64) (*Genome, error) {
	if err := checkRange("length", length, 1, 1<<20); err != nil {
		return nil, err
	}
	t := &Genome{name: "genome", classes: species, length: length, seed: seed}
	for _, name := range genomes {
		path, err := findFile(folder, name, name+".gz")
		if err != nil {
			return nil, err
		}
		records, err := dataset.ReadFile(path, dataset.ReadFASTA)
		if err != nil {
			return nil, err
		}
		if err := t.addSpecies(records); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return t, nil
}

// addSpecies divides the records of a species among the splits. It returns an error if a
// split is shorter than a window.
func (t *Genome) addSpecies(records []dataset.Record) error {
	records = slices.DeleteFunc(records, func(r dataset.Record) bool { return len(r.Bases) < t.length })
	slices.SortStableFunc(records, func(a, b dataset.Record) int { return len(b.Bases) - len(a.Bases) })
	var parts [3][][]byte
	for i, r := range records {
		n := len(r.Bases)
		switch {
		case len(records) < 3:
			parts[Train] = append(parts[Train], r.Bases[:n*8/10])
			parts[Valid] = append(parts[Valid], r.Bases[n*8/10:n*9/10])
			parts[Test] = append(parts[Test], r.Bases[n*9/10:])
		case i == 1:
			parts[Test] = append(parts[Test], r.Bases)
		case i == 2:
			parts[Valid] = append(parts[Valid], r.Bases)
		default:
			parts[Train] = append(parts[Train], r.Bases)
		}
	}
	return t.addRegions(parts)
}

// addSplits adds the records of a species by split. It returns an error if a split is shorter
// than a window.
func (t *Genome) addSplits(records [3][]dataset.Record) error {
	var parts [3][][]byte
	for split, list := range records {
		for _, r := range list {
			parts[split] = append(parts[split], r.Bases)
		}
	}
	return t.addRegions(parts)
}

// addRegions adds the regions of a species by split, without those shorter than a window. It
// returns an error if a split is left without regions.
func (t *Genome) addRegions(parts [3][][]byte) error {
	for split := range parts {
		parts[split] = slices.DeleteFunc(parts[split], func(b []byte) bool { return len(b) < t.length })
		if len(parts[split]) == 0 {
			return fmt.Errorf("length: no %v part has a window of %d bases", Split(split), t.length)
		}
		t.regions[split] = append(t.regions[split], parts[split])
	}
	return nil
}

func (t *Genome) ignoredFiles() ignoredFiles { return t.ignored }

// Spec returns the specification of the samples. Tokens 1 to 4 are A, C, G and T, 5 is any
// other letter, 0 is padding.
func (t *Genome) Spec() Spec {
	return Spec{Name: t.name, Kind: Class, Metric: Accuracy, Vocab: 6, Length: t.length, Parts: 1, Classes: len(t.classes),
		Count: [3]int{Endless, Endless, Endless}}
}

// baseTokens maps letters of either case to tokens.
var baseTokens = func() *[256]int32 {
	t := new([256]int32)
	for i := range t {
		t[i] = 5
	}
	for i, c := range "ACGT" {
		t[c], t[c|0x20] = int32(i+1), int32(i+1)
	}
	return t
}()

// ClassNames returns the names of the species.
func (t *Genome) ClassNames() []string { return slices.Clone(t.classes) }

// Sample overwrites s with a window. It returns an error if the split has no sample i.
func (t *Genome) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	resetSample(s)
	d := newDraws(t.seed, split, i)
	class := d.intn(len(t.classes))
	s.Class = int32(class)
	// All windows of a species have the same probability.
	windows := 0
	for _, r := range t.regions[split][class] {
		windows += len(r) - t.length + 1
	}
	at := d.intn(windows)
	for _, r := range t.regions[split][class] {
		if n := len(r) - t.length + 1; at >= n {
			at -= n
			continue
		}
		for _, c := range r[at:][:t.length] {
			s.Tokens = append(s.Tokens, baseTokens[c])
		}
		break
	}
	return nil
}

// kmerLength is the length of the words that the baseline counts.
const kmerLength = 6

// Baselines scores the commonest class and naive Bayes over words of six bases. It returns
// the errors of Sample.
func (t *Genome) Baselines(n int) ([]Baseline, error) {
	return runBaselines(
		func() (Baseline, error) { return scoreMajority(t, n) },
		func() (Baseline, error) {
			return scoreNaiveBayes("naive Bayes over 6-mers", t, n, func(s *Sample, f func([]byte)) { eachKmer(s.Tokens, kmerLength, 4, f) })
		},
	)
}

// eachKmer calls f with each run of k tokens that are at most last. f must not keep the word.
func eachKmer(tokens []int32, k int, last int32, f func([]byte)) {
	var word []byte
	for _, b := range tokens {
		if b > last {
			word = word[:0]
			continue
		}
		if len(word) == k {
			word = append(word[:0], word[1:]...)
		}
		if word = append(word, byte(b)); len(word) == k {
			f(word)
		}
	}
}
