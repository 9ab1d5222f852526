def looks_like_whatsapp(lines): return False
def read_whatsapp(*a): return iter(())
