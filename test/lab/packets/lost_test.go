package packets

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLost: packets after the last answer are under way, and an answer can come late.
func TestLost(t *testing.T) {
	most, last := Lost("PING 10.0.0.1 (10.0.0.1) 56(84) bytes of data.\n" +
		"64 bytes from 10.0.0.1: icmp_seq=2 ttl=63 time=1 ms\n" +
		"64 bytes from 10.0.0.1: icmp_seq=6 ttl=63 time=1 ms\n" +
		"64 bytes from 10.0.0.1: icmp_seq=5 ttl=63 time=30 ms\n" +
		"64 bytes from 10.0.0.1: icmp_seq=7 ttl=63 time=1 ms\n" +
		"From 10.0.0.2 icmp_seq=8 Destination Host Unreachable\n")
	require.Equal(t, 2, most)
	require.Equal(t, 7, last)
	most, last = Lost("")
	require.Zero(t, most+last)
}

// TestDropped: the numbers of the sockets are added up.
func TestDropped(t *testing.T) {
	require.Equal(t, 12, dropped("Netid Recv-Q Send-Q Local Address:Port Peer Address:Port\n"+
		"p_raw 0      0                 *:eth0                   *         skmem:(r0,rb212992,t0,tb212992,f0,w0,o0,bl0,d5)\n"+
		"p_raw 0      0                 *:tap68ef25aa-4a         *         skmem:(r0,rb212992,t0,tb212992,f0,w0,o0,bl0,d7)\n"))
	require.Zero(t, dropped(""))
}
