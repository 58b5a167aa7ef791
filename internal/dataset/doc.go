// Package dataset reads the file formats of data sets. Readers take a stream of plain bytes.
// ReadFile opens a path, inflates gzip and zstd and adds the path to errors.
//
//	reader            format                                   gives
//	ReadBytes         a number of bytes                        bytes
//	ReadIDX           idx of bytes (MNIST)                     shape and bytes
//	ReadCIFAR10       CIFAR-10, binary version                 Images
//	ReadSheet         PNG with an image of 32×32 in each row   Images
//	ReadImageRecords  a label and the grey pixels of an image  Images
//	ReadPicture       PNG, JPEG                                Picture
//	ReadTable         CSV, numbers under a header              Table
//	ReadFields        CSV and TSV, text under a header         Fields
//	ReadExpressions   ListOps of LRA, TSV                      Expression
//	ReadReviews       IMDB reviews, one in a line              Review
//	ReadReviewFolder  IMDB reviews, one in a file              Review
//	ReadReviewArchive IMDB reviews, the tar                    Review
//	ReadPairs         AAN pairs of LRA, one in a line          Pair
//	ReadFASTA         FASTA                                    Record
//	ReadWAV           WAV, PCM and floats                      Audio
//
// Files are untrusted: every size is checked before use, memory grows only with the bytes that
// arrive, and malformed data is refused with an error that names the field and both values. No
// reader panics on data.
package dataset
