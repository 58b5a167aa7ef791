package fetch

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/dataset"
)

// sets is the catalogue. Sizes and checksums are stated by the publishers or by many copies, or
// computed from a copy with checked content. Unknown ones are omitted.
var sets = []Set{
	{
		Name: "mnist", Doc: "70,000 handwritten digits of 28×28 (idx)",
		Terms: "LeCun, Cortes, Burges; no licence named, copies commonly state CC BY-SA 3.0",
		Files: []File{
			mnistFile("train-images-idx3-ubyte.gz", 9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", "6bbc9ace898e44ae57da46a324031adb"),
			mnistFile("train-labels-idx1-ubyte.gz", 28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", "a25bea736e30d166cdddb491f175f624"),
			mnistFile("t10k-images-idx3-ubyte.gz", 1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", "2646ac647ad5339dbf082846283269ea"),
			mnistFile("t10k-labels-idx1-ubyte.gz", 4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", "27ae3e4e09519cfbb04c329615203637"),
		},
	},
	{
		Name: "cifar10", Doc: "60,000 colour images of 32×32 in ten classes (binary version)",
		Terms: "Krizhevsky 2009; no licence named, to be cited",
		Files: []File{{
			Name: "cifar-10-binary.tar.gz", Size: 170052171,
			URLs:   []string{"https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"},
			SHA256: "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
			MD5:    "c32a1d4ab5d03f1284b67883e8d87530",
			Unpack: &Archive{Members: []Member{
				cifarMember("data_batch_1.bin", "5dd7e06a14cb22eb9f671a540d1b7c25"),
				cifarMember("data_batch_2.bin", "5ea93a67294ea407fff1d09f752e9692"),
				cifarMember("data_batch_3.bin", "942cd6a4bcdd0dd3c604fbe906cb4421"),
				cifarMember("data_batch_4.bin", "ae636b3ba5c66a11e91e8cb52e771fcb"),
				cifarMember("data_batch_5.bin", "53f37980c15c3d472c316c40844f3f0d"),
				cifarMember("test_batch.bin", "803d5f7f4d78ea53de84dbe85f74fb6d"),
			}},
		}},
		Parts: []Part{{"some sheets of images", false, []string{"labels_51000.bin", "cifar10_batch_0.png", "cifar10_batch_50.png"}}},
	},
	{
		Name: "imdb", Doc: "50,000 film reviews, half of them to be judged by",
		Terms: "Maas et al. 2011; no licence named, to be cited",
		Files: []File{{
			Name: "aclImdb_v1.tar.gz", Size: 84125825, MD5: "7c2ac02c03563afcf9b574c7e56c153a",
			URLs: []string{"https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz"},
			Unpack: &Archive{
				Members: []Member{{Path: "aclImdb/train", Name: "imdb_train.tsv"}, {Path: "aclImdb/test", Name: "imdb_test.tsv"}},
				convert: convertReviews,
			},
		}},
		Parts: []Part{
			{"10,000 and 2,500 reviews", false, []string{"imdb_train_10000.tsv.gz", "imdb_test_2500.tsv.gz"}},
			{"the unpacked archive", true, []string{"aclImdb/train/urls_pos.txt", "aclImdb/test/urls_pos.txt"}},
		},
	},
	{
		Name: "listops", Doc: "96,000 expressions to learn from, 2,000 to choose by, 2,000 to be judged by",
		Terms: "generated", Generated: true,
		Parts: []Part{
			{"generated", true, []string{"basic_train.tsv", "basic_val.tsv", "basic_test.tsv"}},
			{"2,000 of the official generator", false, []string{"basic_train.tsv.gz", "basic_val.tsv.gz", "basic_test.tsv.gz"}},
		},
	},
	{
		Name: "pathfinder32", Doc: "200,000 images of paths for each length of 6, 9 and 14 paddles, of 32×32 (records of a label and pixels)",
		Terms: "generated", Generated: true,
		Parts: []Part{
			{"generated, all lengths", true, []string{"contour6.bin.gz", "contour9.bin.gz", "contour14.bin.gz"}},
			{"generated, length 14", false, []string{"contour14.bin.gz"}},
			{"generated, length 9", false, []string{"contour9.bin.gz"}},
			{"generated, length 6", false, []string{"contour6.bin.gz"}},
			{"6,000 of the official generator", false, []string{"easy_contour6_2000.bin.gz", "hard_contour14_4000.bin.gz"}},
		},
	},
	{
		Name: "aan", Doc: "pairs of papers of the ACL anthology, out of the release of the Long Range Arena (7.7 GB)",
		Terms: "the release's README allows the ids alone to be given on",
		Files: []File{{
			Name: "lra_release.gz", URLs: []string{"https://storage.googleapis.com/long-range-arena/lra_release.gz"},
			Unpack: &Archive{Members: []Member{
				{Path: "*/new_aan_pairs.train.tsv", Name: "new_aan_pairs.train.tsv", Size: 16 << 30},
				{Path: "*/new_aan_pairs.eval.tsv", Name: "new_aan_pairs.eval.tsv", Size: 4 << 30},
				{Path: "*/new_aan_pairs.test.tsv", Name: "new_aan_pairs.test.tsv", Size: 4 << 30},
			}},
		}},
		Parts: []Part{{"under tsv_data", true, []string{"tsv_data/new_aan_pairs.train.tsv", "tsv_data/new_aan_pairs.eval.tsv", "tsv_data/new_aan_pairs.test.tsv"}}},
	},
	{
		Name: "enwik8", Doc: "the first 100,000,000 bytes of English Wikipedia in 2006",
		Terms: "GFDL",
		Files: []File{{
			Name: "enwik8.zip", Size: 36445475, SHA256: "547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc",
			URLs:   []string{"https://mattmahoney.net/dc/enwik8.zip", "http://mattmahoney.net/dc/enwik8.zip"},
			Unpack: &Archive{Members: []Member{{Path: "enwik8", Name: "enwik8", Size: 100000000, MD5: "a1fa5ffddb56f4953e226637dabbb36a"}}},
		}},
		Parts: []Part{{"its first 4,000,000 bytes", false, []string{"enwik8-first-4000000.gz"}}},
	},
	{
		Name: "tinyshakespeare", Doc: "1,115,394 characters of Shakespeare",
		Terms: "public domain; the repository states MIT",
		Files: []File{{
			Name: "input.txt", Size: 1115394, SHA256: "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
			URLs: []string{"https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"},
		}},
	},
	{
		Name: "warandpeace", Doc: "War and Peace, about 3.3 MB, which changes with the publisher's releases",
		Terms: "Project Gutenberg License, in the file; public domain in the USA",
		Files: []File{{Name: "2600-0.txt", URLs: []string{"https://www.gutenberg.org/files/2600/2600-0.txt"}}},
		Parts: []Part{{"compressed", true, []string{"2600-0.txt.gz"}}},
	},
	{
		Name: "genome", Doc: "E. coli, and the first hundredth of three species' chromosomes (FASTA)",
		Terms: "public databases; NCBI places no restriction on use",
		Files: []File{
			{
				Name: "GCF_000005845.2_ASM584v2_genomic.fna.gz", ContentMD5: "92c997bcd88e983ffdb21b2712ed3736",
				URLs: []string{"https://ftp.ncbi.nlm.nih.gov/genomes/all/GCF/000/005/845/GCF_000005845.2_ASM584v2/GCF_000005845.2_ASM584v2_genomic.fna.gz"},
			},
			genomeFile("A.thaliana.fa.gz", 371282, "c9d8a042cae964d6635564fca17c3402e5649854ec1b06aeae508b1ed30092a6"),
			genomeFile("C.elegans.fa.gz", 305107, "18c747265ab3493fbfe0d0dd4936b60d2a8f7d4c150184208d9b3bc9ee3469f2"),
			genomeFile("D.melanogaster.fa.gz", 336913, "dcc5749c9edea0be2934d1706fa2dcdf9caf011f983186f6fbc74742526ea816"),
		},
	},
}

// mnistFile returns a file of MNIST with its addresses.
func mnistFile(name string, size int64, sha256, contentMD5 string) File {
	return File{Name: name, Size: size, SHA256: sha256, ContentMD5: contentMD5, URLs: []string{
		"https://storage.googleapis.com/cvdf-datasets/mnist/" + name,
		"https://ossci-datasets.s3.amazonaws.com/mnist/" + name,
	}}
}

// cifarMember returns a batch of CIFAR-10's archive.
func cifarMember(name, md5 string) Member {
	return Member{Path: "cifar-10-batches-bin/" + name, Name: "cifar-10-batches-bin/" + name, Size: 10000 * 3073, MD5: md5}
}

// genomeFile returns a FASTA file of a species with its address.
func genomeFile(name string, size int64, sha256 string) File {
	return File{Name: name, Size: size, SHA256: sha256, URLs: []string{
		"https://raw.githubusercontent.com/iankorf/MCB185/fc3c33ed5dacad55e15ba971178b42b08bff2825/data/" + name,
	}}
}

// convertReviews writes two files with one review per line from the archive, which has one file
// per review.
func convertReviews(ctx context.Context, archive, folder string) error {
	parts, err := dataset.ReadFile(archive, func(r io.Reader) ([2][]dataset.Review, error) {
		return dataset.ReadReviewArchive(&contextReader{ctx, r})
	})
	if err != nil {
		return err
	}
	for i, name := range []string{"imdb_train.tsv", "imdb_test.tsv"} {
		err := atomicfile.Write(filepath.Join(folder, name), func(w io.Writer) error { return dataset.WriteReviews(w, parts[i]) })
		if err != nil {
			return fmt.Errorf("%s: %w", archive, err)
		}
	}
	return nil
}
