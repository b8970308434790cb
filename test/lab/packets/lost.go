package packets

import (
	"regexp"
	"slices"
	"strconv"
)

// MaxLost is how many packets in a row may have no answer while the network of running pods changes, if packets are sent every
// 20 ms. The userspace datapath of Open vSwitch drops packets while it waits for a processor. An outage takes a second or more. Where nothing
// changes for pods, Streams.Keep excuses none.
const MaxLost = 40

// answered matches the number of a packet in a line of ping about its answer.
var answered = regexp.MustCompile(`icmp_seq=(\d+) ttl`)

// Lost reads the output of ping, of at most 65,535 packets. most is how many packets in a row have no answer at most, up to the last
// one that has one. last is the number of that packet.
func Lost(output string) (most, last int) {
	var numbers []int
	for _, line := range answered.FindAllStringSubmatch(output, -1) {
		number, _ := strconv.Atoi(line[1]) // at most 65535
		numbers = append(numbers, number)
	}
	slices.Sort(numbers) // an answer can come late
	for _, number := range numbers {
		most, last = max(most, number-last-1), number
	}
	return most, last
}
