// Package task is the catalogue of training tasks, one file each. A task reads or generates its
// data and scores simple baselines that a model has to beat.
//
// Open returns a Source. Its Spec describes the samples; sample i of a split is a function of
// the seed and i.
//
//	name       sample                               target                judged by  baselines
//	shapes     signal of 100 numbers                signal                MSE        mean, input
//	listops    expression, 500 to 2000 tokens       its value, 10         accuracy   root operator, its digits
//	listops6   the same, six operators              its value, 10         accuracy   the same
//	copy       w, separator, w                      next token            accuracy   commonest
//	induction  tokens, one special                  what followed it      accuracy   commonest
//	mqar       keys and values, keys again          their values          accuracy   commonest, last
//	needle     text with keyed lines, asked again   the lines' values     accuracy   commonest, last
//	pathfinder 1024 grey values                     one path or two, 2    accuracy   pixels' sum, count
//	mnist      784 grey values, or patches          digit, 10             accuracy   nearest mean
//	image      1024 grey values of CIFAR-10         class, 10             accuracy   nearest mean
//	mnist-gen  784 grey values                      next level            bits       histograms, table of neighbours
//	cifar-gen  3072 values, channels in turn        next level            bits       histograms, table of neighbours
//	text       bytes of a review                    positive, 2           accuracy   naive Bayes over words
//	retrieval  two papers, bytes                    cited, 2              accuracy   common words
//	films      two reviews, bytes                   of one film, 2        accuracy   common words
//	genome     window of DNA                        species, 4            accuracy   naive Bayes over 6-mers
//	charlm     characters of a text                 next token            nats       Ngram
//	bytelm     bytes of a text                      next token            nats       Ngram
//	series     your rows of numbers, or points      class, number, label  as it is   statistics: nearest mean, regression
//	forecast   rows of your table                   rows that follow      MSE        last value, last season, regression
//	fasta      your letters                         class                 accuracy   naive Bayes over 6-mers
//	wav        your sounds                          class                 accuracy   nearest mean of statistics
//	picture    your pictures                        class                 accuracy   nearest mean
//	file       your texts                           class, number, label  as it is   naive Bayes, mean, label of the token
//
// Ask returns a task without its data, for new inputs to a trained model.
//
// A text is a WindowSource: training windows have any length and begin anywhere. Samples of
// mqar, listops, listops6 and text, each a WindowDrawer, grow in training where it is asked for.
package task
