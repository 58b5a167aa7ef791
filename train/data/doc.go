// Package data is the contract between data and training. A Source provides the samples that
// a model learns from and is scored on: implement its two methods to train on data of your
// own. A Spec describes the samples, and a Sample is one of them.
//
// A Source may know more than its samples, and then has the methods of further interfaces:
// a ClassNamer names its classes, a LengthReporter knows how long its samples are, a ByteReporter
// says that its tokens are bytes, and a WindowDrawer draws samples of a wanted length.
package data
