// Package attacks builds farfield and attacks it as a user's machine would: damaged
// files, kills, full disks, folders without permission, too few descriptors, readers
// that leave, and two processes at once. It runs in the root of a checkout.
//
//	attacks [-only REGEXP] [-tries N] [-seed S] [-page FILE] [-work DIR] [-parallel N]
//
// Every attack has tries. A try is drawn from the seed, the attack's name and the try's
// number. Results are kept in -work, bound to the bytes of both programs and
// to the seed: the same command continues where it was interrupted. -try K makes one try
// again and keeps its files. -page writes the table into a page.
package attacks
