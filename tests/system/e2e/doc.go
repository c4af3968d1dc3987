// Package e2e tests the programs as processes, from outside: command lines, unit files, signals,
// sockets and answers.
//
//	testdata/script/*.txtar  one concept each, readable as documentation
//	*_test.go                what needs a store, a vswitch, or timing
//	kube*_test.go           what needs a real kube-apiserver, whose binary SLUICE_KUBE_APISERVER names
//	*faults_test.go         what is lost when parts die, are cut off, set back or fill up; most of it with SLUICE_FAULTS, as in clock_test.go and leader_test.go
//	scale*_test.go         measured with SLUICE_SCALE, from the API server to the tables
//
// # Invariants
//
// The programs are built once per run, or taken from the directory that SLUICE_BIN
// names. Nothing sleeps, and no port is fixed: tests poll until a deadline, and
// programs listen on Unix sockets or on ports that the kernel chose.
//
// # Commands of the scripts
//
// Beside those of testscript (exec, stdout, stderr, cmp, wait, kill, …):
//
//	ready                  wait until the agent on $SLUICE_API_SOCKET enforces its manifests
//	api PATH               what the agent's debug API answers, as stdout
//	until REGEXP CMD ARG…  run a program until its output matches
//	status CODE CMD ARG…   run a program that must end with this exit code
//	absent PATH            wait until there is no such file
//	terminate              send SIGTERM to everything in the background
//	etcd NAME              start an etcd on loopback; its address becomes $NAME
//	store NAME             the keys that the etcd of that name holds, as stdout
//
// SLUICE_UPDATE=1 rewrites the files that cmp compares with what is there now.
//
// $WORK/shop is a copy of docs/examples/shop, $EXAMPLES is docs/examples, and
// $SLUICE_API_SOCKET names a socket of the script's own.
package e2e
