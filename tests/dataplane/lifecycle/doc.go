// Package lifecycle follows pods from creation to deletion on a node with the kernel dataplane,
// with the real agent, the real CNI plugins and real packets, each node in network namespaces of
// its own. It needs root, and Debian's containernetworking-plugins; without them its tests are
// skipped, with a line that gives the reason. "make lifecycle" runs it whole, "make test" a part.
//
// # What is asked
//
// Pods at one bridge talk all the time, by frames from raw sockets that are older than their
// interfaces (sender). After ADD has returned, no frame of a denied pod may arrive: no process of a
// pod runs before that. Earlier frames are logged. Frames of permitted pods must arrive again after
// every event.
//
//	pods that send from their first instruction     TestLifeOfPodFromFirstInstruction
//	agent absent                                    TestLifeWithoutAgent,
//	                                                TestCNIBlocksUntilAgentStarts
//	agent killed at 50 random points                TestLifeWithAgentKilledAtRandomPoints
//	state late by a second                          TestLifeWithLateState
//	etcd empty, wrong prefix, rolled back, away     TestLifeWithoutStore/<which>
//	poisoned by ARP and NA, of self and of others,
//	aged forwarding database, routes that flap,
//	interface renamed, unreadable results           TestKernelEnforcesWhateverPodsWrite/<which>
//	veth made again                                 TestLifeOfRecreatedVeth,
//	                                                TestKernelPodsAreBlockedFromBirthToDeath
//	pod made again with the same name and address   TestLifeOfRecreatedPod,
//	                                                TestKernelPodsAreBlockedFromBirthToDeath
//	two agents                                      TestLifeWithTwoAgents
//	pins squatted                                   TestLifeWithForeignPins
//	DEL without ADD                                 TestLifeOfDELWithoutADD
//	1 000 pods leave nothing behind                 TestLifeOfThousandPods
//	addresses before the API has them               TestCNIAddReturnsWithPolicyEnforced
//	addresses that contradict the API, or others    TestCNIAddressesOfAPI...,
//	                                                TestCNIAddWithTakenAddress...
//	bad input to the plugin                         TestCNIErrorsNameCause
package lifecycle
