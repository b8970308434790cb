package packets

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// drops matches the number of packets in a line of ss about the memory of a socket.
var drops = regexp.MustCompile(`skmem:\([^)]*,d(\d+)\)`)

// Unread returns the number of packets that the kernel has dropped because the switches of the hosts did not read them: they waited for a
// processor until the buffers of their sockets were full.
func Unread(ctx context.Context, lab *ovnhost.Lab, hosts []string) (sum int, err error) {
	for _, host := range hosts {
		out, err := lab.Exec(ctx, host, "ss", "--packet", "--memory")
		if err != nil {
			return 0, fmt.Errorf("count packets that the switch of %s has not read: %w", host, err)
		}
		sum += dropped(out)
	}
	return sum, nil
}

// dropped sums up the packets that sockets have dropped, in the output of ss about their memory.
func dropped(output string) (sum int) {
	for _, line := range drops.FindAllStringSubmatch(output, -1) {
		n, _ := strconv.Atoi(line[1]) // a number of the kernel, which has 32 bits
		sum += n
	}
	return sum
}
