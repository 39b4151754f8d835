"""A list of services as literal bytes."""

PAY = "7061796d656e742d73657276696365"  # payment-service
AT_10 = "7463703a2f2f3139322e3136382e312e31303a35353535"  # tcp://192.168.1.10:5555
SERVICE = "payment-service"
ENDPOINT = "tcp://192.168.1.10:5555"

LIST_HEX = [
    "0a0b0c0d",  # registry id 0x0d0c0b0a
    "efcdab8967452301",  # list_seq 0x0123456789abcdef
    "02000000",  # two services
    PAY,
    "02000000",  # two providers
    AT_10,
    "0100000001",  # routing id number 1, big-endian
    "01000000",
    "7463703a2f2f5b3a3a315d3a37",  # tcp://[::1]:7
    "616c696365",  # alice
    "0a000000",
    "c3a9",  # é
    "00000000",  # without providers
]
LIST_HEAD = ["0500", "01000000", "0200000000000000"]


def frames_of(*hexes: str) -> list[bytes]:
    return [bytes.fromhex(text) for text in hexes]
