// Package matches has expressions of nftables by which rules of several packages match packets. It knows no table.
package matches

import (
	"strings"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Register is the register by which the expressions pass values.
const Register = unix.NFT_REG_1

// InBy matches packets that came in by a link. A name that ends in * means every link whose name begins so.
func InBy(link string) []expr.Any { return byName(expr.MetaKeyIIFNAME, expr.CmpOpEq, link) }

// NotInBy matches packets that did not come in by a link.
func NotInBy(link string) []expr.Any { return byName(expr.MetaKeyIIFNAME, expr.CmpOpNeq, link) }

// OutBy matches packets that leave by a link. A name that ends in * means every link whose name begins so.
func OutBy(link string) []expr.Any { return byName(expr.MetaKeyOIFNAME, expr.CmpOpEq, link) }

// NotOutBy matches packets that do not leave by a link.
func NotOutBy(link string) []expr.Any { return byName(expr.MetaKeyOIFNAME, expr.CmpOpNeq, link) }

func byName(key expr.MetaKey, op expr.CmpOp, link string) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: key, Register: Register},
		&expr.Cmp{Op: op, Register: Register, Data: Name(link)},
	}
}

// Name returns what nftables compares with the name of a link: the whole name, padded with zeros, or what is before a * at its end.
func Name(link string) []byte {
	begin, some := strings.CutSuffix(link, "*")
	if some {
		return []byte(begin)
	}
	return append([]byte(link), make([]byte, unix.IFNAMSIZ-len(link))...)
}

// FromHere matches packets whose source is an address of the node.
func FromHere() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: Register, FlagSADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: Register, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}
}

// Translated matches packets of connections whose destination is translated.
func Translated() []expr.Any { return status(expr.CmpOpNeq) }

// NotTranslated matches packets of other connections.
func NotTranslated() []expr.Any { return status(expr.CmpOpEq) }

func status(op expr.CmpOp) []expr.Any {
	const translated = 1 << 5 // IPS_DST_NAT
	bits := binaryutil.NativeEndian.PutUint32
	return []expr.Any{
		&expr.Ct{Register: Register, Key: expr.CtKeySTATUS},
		&expr.Bitwise{SourceRegister: Register, DestRegister: Register, Len: 4, Mask: bits(translated), Xor: bits(0)},
		&expr.Cmp{Op: op, Register: Register, Data: bits(0)},
	}
}
