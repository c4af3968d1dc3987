// Package lifecycle follows pods from birth to death on a node whose kernel enforces, with the real
// agent, the real CNI plugins and real packets, each node in network namespaces of its own. It
// needs root, and Debian's containernetworking-plugins; without them its tests are skipped, with a
// line that gives the reason. "make lifecycle" runs it whole, "make test" a part.
//
// # What is asked
//
// Pods at one bridge talk all the time, by frames from raw sockets that are older than their
// interfaces (talker). After ADD has returned, no frame of a denied pod may arrive: no process of a
// pod runs before that. Earlier frames are logged. Frames of permitted pods must arrive again after
// every event.
//
//	pods that send from their first instruction     TestLifeFirstInstruction
//	agent absent                                    TestLifeAgentAbsent, TestCNIWithoutAnAgentBlocksUntilOneIsThere
//	agent killed at 50 random points                TestLifeAgentIsKilledAtRandomPoints
//	state late by a second                          TestLifeStateIsLate
//	etcd empty, wrong prefix, rolled back, away     TestLifeStoreIsLost/<which>
//	poisoned by ARP and NA, of self and of others,
//	aged forwarding database, routes that flap,
//	interface renamed, unreadable results           TestKernelEnforcementEndsByNothingThatAPodWrites/<which>
//	veth made again                                 TestLifeVethIsMadeAgain, TestKernelPodsAreBlockedFromBirthToDeath
//	pod made again with the same name and address   TestLifePodIsMadeAgain, TestKernelPodsAreBlockedFromBirthToDeath
//	two agents                                      TestLifeTwoAgents
//	pins squatted                                   TestLifePinsAreSquatted
//	DEL without ADD                                 TestLifeDELWithoutADD
//	1 000 pods leave nothing behind                 TestLifeThousandPods
//	addresses before the API has them               TestCNIAddReturnsWithPolicyInForce
//	addresses that contradict the API, or others    TestCNIAddressesOfTheAPI..., TestCNIAddWithTheAddressOf...
//	bad input to the plugin                         TestCNIRefusesWhatIsWrongInWords
package lifecycle
